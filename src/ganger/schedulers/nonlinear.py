"""Nonlinear functions that were fitted to simulated schedules of small mean slowdown.

Source: Carastan-Santos & de Camargo 2017, "Obtaining dynamic scheduling policies with simulation
and machine learning" (SC17, doi:10.1145/3126908.3126955), table 3. r is the requested run time,
n the executors, s the submission in seconds from the beginning of the log; smallest first.
"""

from typing import ClassVar

from ganger.schedulers.batch import BatchHeuristic


class F1(BatchHeuristic, frozen=True):
    """Batch jobs by log10(r) n + 870 log10(s)."""

    name: ClassVar[str] = "f1"


class F2(BatchHeuristic, frozen=True):
    """Batch jobs by sqrt(r) n + 25,600 log10(s)."""

    name: ClassVar[str] = "f2"


class F3(BatchHeuristic, frozen=True):
    """Batch jobs by r n + 6,860,000 log10(s)."""

    name: ClassVar[str] = "f3"


class F4(BatchHeuristic, frozen=True):
    """Batch jobs by r sqrt(n) + 530,000 log10(s)."""

    name: ClassVar[str] = "f4"
