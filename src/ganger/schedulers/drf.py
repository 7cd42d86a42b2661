"""Dominant resource fairness: fair sharing where executors differ in size."""

from typing import ClassVar

import numpy as np

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.sizes import DOMINANT, choose_by_size, new_scales, run_by_size
from ganger.simulator.state import State
from ganger.simulator.table import Table


class Drf(Heuristic, frozen=True):
    """Executors go, one by one, to the job whose dominant share is least.

    A job's dominant share is the larger of its shares of all cores and of all memory, by what its
    executors have: an executor is a job's as a whole. Without executor classes it is the share of
    the executors.

    Source: Ghodsi et al. 2011, NSDI, "Dominant resource fairness"; there between users.
    """

    name: ClassVar[str] = "drf"

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        run_by_size(state, table, new_scales(state), DOMINANT, 0.0)

    def choose(self, state: State, table: Table) -> tuple[int, int]:
        s, limit = choose_by_size(state, table, new_scales(state), DOMINANT, 0.0)
        return int(s), int(limit)
