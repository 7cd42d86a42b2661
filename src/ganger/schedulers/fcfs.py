"""First come, first served."""

from typing import ClassVar

from ganger.schedulers.batch import BatchHeuristic


class Fcfs(BatchHeuristic, frozen=True):
    """Batch jobs in the order of their arrival.

    With `backfill=easy`, what most production systems resemble.
    """

    name: ClassVar[str] = "fcfs"
