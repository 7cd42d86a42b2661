"""Utility functions of waiting time: who has waited long for its size comes first.

Source: Tang, Lan, Desai & Buettner 2009, "Fault-aware, utility-based job scheduling on Blue Gene/P
systems". w is the time waited, r the requested run time, n the executors.
"""

from typing import ClassVar

from ganger.schedulers.batch import BatchHeuristic


class Wfp3(BatchHeuristic, frozen=True):
    """Batch jobs by (w / r)^3 n, largest first: large jobs do not starve."""

    name: ClassVar[str] = "wfp3"


class Unicep(BatchHeuristic, frozen=True):
    """Batch jobs by w / (log2(n) r), largest first; also called UNICEF: small jobs are quick."""

    name: ClassVar[str] = "unicep"
