"""A trained policy as a scheduler: compiled inside the simulator, or asked about an Observation."""

import math
import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import compiled
from ganger.policy.features import Rows, new_rows
from ganger.policy.forward import choose_decision, new_scratch, weights_of
from ganger.policy.layout import limit_levels
from ganger.simulator.engine import advance, decide
from ganger.simulator.observation import Decision, Observation
from ganger.simulator.observing import decision_of, state_of
from ganger.simulator.state import State
from ganger.simulator.table import Table
from ganger.streams import derive

# Plain literals would make Numba compile the callee once more for each of them.
_FIRST, _FALSE = np.int64(0), np.bool_(False)


@compiled
def _run_episode(state, table, weights, scratch, rows, levels, messages, key, sample):
    while advance(state, table) == 1:
        word = derive(key, state.clock[0].decisions)
        chosen, level, _ = choose_decision(
            state, table, weights, scratch, rows, _FIRST, levels, messages, _FALSE, word, sample
        )
        decide(state, table, rows.stage_index[chosen], levels[level])


class Chosen(NamedTuple):
    """A decision of a policy."""

    decision: Decision
    probability: float
    rows: Rows
    """What the policy saw; overwritten by its next decision in this thread."""


class PolicyScheduler:
    """Decides with a policy's weights: the most probable action, or one drawn from the policy."""

    def __init__(
        self, vector: NDArray[np.float32], *, messages: bool = False, sample: bool = False
    ) -> None:
        self.messages = messages
        self.sample = sample
        self._vector = vector
        self._weights = weights_of(vector, messages)
        self._room = threading.local()  # one scheduler may serve several threads at once

    def __str__(self) -> str:
        return f"learned:{'sampled' if self.sample else 'argmax'}"

    def _scratch(self, state: State, table: Table) -> tuple[Any, Any]:
        jobs, stages = len(state.jobs), len(state.stages)
        largest = int(state.jobs["stages"].max(initial=1))
        edges = int(table.stages["children"].max(initial=0)) * stages if self.messages else 1
        need = (jobs, stages, largest, edges)
        have = getattr(self._room, "sizes", (0, 0, 0, 0))
        if any(n > h for n, h in zip(need, have, strict=True)):
            sizes = tuple(max(n, h) for n, h in zip(need, have, strict=True))
            self._room.sizes = sizes
            self._room.scratch = new_scratch(sizes[0], sizes[1], sizes[2])
            self._room.rows = new_rows(1, sizes[1], sizes[0], sizes[3])
        return self._room.scratch, self._room.rows

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        """Drive a loaded state to its end."""
        scratch, rows = self._scratch(state, table)
        levels = limit_levels(int(state.clock[0]["executors"]))
        _run_episode(
            state, table, self._weights, scratch, rows, levels, self.messages, key, self.sample
        )

    def decide(self, observation: Observation) -> Decision | None:
        """Decide for any cluster that can be observed; None if nothing is schedulable."""
        chosen = self.choose(observation)
        return None if chosen is None else chosen.decision

    def choose(self, observation: Observation) -> Chosen | None:
        """The decision, how probable it was, and what the policy saw."""
        if not any(job.schedulable for job in observation.jobs):
            return None
        state, table = state_of(observation)
        scratch, rows = self._scratch(state, table)
        levels = limit_levels(observation.executors)
        chosen, level, log_p = choose_decision(
            state,
            table,
            self._weights,
            scratch,
            rows,
            _FIRST,
            levels,
            self.messages,
            _FALSE,
            np.uint64(derive(np.uint64(0), observation.version)),  # it returns a Python int
            self.sample,
        )
        s = int(rows.stage_index[chosen])
        decision = decision_of(observation, state, s, int(levels[level]))
        return Chosen(decision, math.exp(log_p), rows)
