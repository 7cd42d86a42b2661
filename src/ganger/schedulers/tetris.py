"""Tetris: stages go where they fit best, short jobs first."""

from typing import ClassVar

import numpy as np

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.sizes import PACKING, choose_by_size, new_scales, run_by_size
from ganger.simulator.state import State
from ganger.simulator.table import Table


class Tetris(Heuristic, frozen=True):
    """The stage of the highest score gets all executors on offer:

    alignment - srpt x (mean alignment / mean work left) x work left of its job

    Alignment is the dot product of what the stage demands and what an executor on offer has, each
    as a share of the largest executor's; the means are over the stages that may be chosen. In the
    paper a machine holds many tasks and the second vector is what it has free; here a task takes an
    executor as a whole.

    Source: Grandl et al. 2014, SIGCOMM, "Multi-resource packing for cluster schedulers".
    """

    name: ClassVar[str] = "tetris"

    srpt: float = 1.0
    """Weight of the work left; 0 packs only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range("srpt", 0.0, 1e6)

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        run_by_size(state, table, new_scales(state), PACKING, self.srpt)

    def choose(self, state: State, table: Table) -> tuple[int, int]:
        s, limit = choose_by_size(state, table, new_scales(state), PACKING, self.srpt)
        return int(s), int(limit)
