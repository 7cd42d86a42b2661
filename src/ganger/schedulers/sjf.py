"""The shortest or the longest job first, by the run time that was asked for."""

from typing import ClassVar

from ganger.schedulers.batch import BatchHeuristic


class Sjf(BatchHeuristic, frozen=True):
    """Batch jobs by requested run time, shortest first."""

    name: ClassVar[str] = "sjf"


class Ljf(BatchHeuristic, frozen=True):
    """Batch jobs by requested run time, longest first."""

    name: ClassVar[str] = "ljf"
