"""What all batch heuristics share: an order of the queue, with or without backfilling."""

from typing import ClassVar, Literal

import numpy as np

from ganger.schedulers.backfill import (
    BACKFILLS,
    Queue,
    batch_rule,
    choose_batch,
    new_queue,
    run_batch,
)
from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.order import BATCH_ORDERS
from ganger.simulator.state import State
from ganger.simulator.table import Table


class BatchHeuristic(Heuristic, frozen=True):
    """A queue in the order of `name`; see `ganger.schedulers.order`."""

    name: ClassVar[str]

    backfill: Literal["none", "easy", "conservative"] = "none"
    """Who may overtake the first in the queue while it cannot start: nobody; jobs that do not
    delay it; jobs that delay none of those before them."""

    def _queue(self, state: State) -> Queue:
        return new_queue(batch_rule(BATCH_ORDERS[self.name], BACKFILLS[self.backfill]), state)

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        run_batch(state, table, self._queue(state))

    def choose(self, state: State, table: Table) -> tuple[int, int]:
        s, limit = choose_batch(state, table, self._queue(state))
        return int(s), int(limit)
