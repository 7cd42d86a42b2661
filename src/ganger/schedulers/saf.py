"""The smallest area first."""

from typing import ClassVar

from ganger.schedulers.batch import BatchHeuristic


class Saf(BatchHeuristic, frozen=True):
    """Batch jobs by requested run time x executors, smallest first."""

    name: ClassVar[str] = "saf"
