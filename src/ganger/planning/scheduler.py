"""A policy that looks ahead, as a scheduler."""

import threading
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import records
from ganger.errors import SchedulerError
from ganger.planning.lookahead import PROPOSAL, Learned, Plan, Room, run_planned
from ganger.policy.checkpoint import read_policy
from ganger.policy.features import new_rows
from ganger.policy.forward import Weights, new_scratch, weights_of
from ganger.policy.layout import limit_levels
from ganger.schedulers import KShortest, Srpt
from ganger.schedulers.rule import new_desk
from ganger.simulator.known import Told, new_known, told_table
from ganger.simulator.state import State
from ganger.simulator.table import Table

HEURISTICS = (
    Srpt(cap="useful", leftover="idle"),
    KShortest(k=3),
    Srpt(cap="sqrt", c=0.3),
)
"""Whose decisions are tried out beside the policy's: the best at light load, and at overload."""


class PlanningScheduler:
    """Tries out a policy's likely decisions in the simulator before it takes one.

    It knows no more than is known: neither the jobs to come nor how long a task will really take
    (`simulator/known.py`). It never draws, so it decides alike whenever it is asked.
    """

    def __init__(
        self,
        vector: NDArray[np.float32],
        *,
        messages: bool = False,
        proposals: int = 24,
        least_probability: float = 0.001,
        budget: int = 1000,
    ) -> None:
        """Plan with a policy.

        Args:
            vector: the policy's weights, as a checkpoint holds them.
            messages: whether it passes messages.
            proposals: most decisions to try out, those of heuristics included.
            least_probability: of a proposal of the policy's.
            budget: simulated decisions for a real one; when they are spent, the best of what was
                tried out is taken. A simulated decision takes about as long as one of the policy's.

        Raises:
            SchedulerError: a setting makes no sense.
        """
        if proposals < 1:
            raise SchedulerError(f"proposals is {proposals}; expected 1 or more")
        if not 0 < least_probability <= 1:
            raise SchedulerError(
                f"least_probability is {least_probability}; expected above 0, and at most 1"
            )
        if budget < 1:
            raise SchedulerError(f"budget is {budget}; expected 1 or more")
        self.messages = messages
        self.proposals = proposals
        self.least_probability = least_probability
        self.budget = budget
        self._vector = vector
        self._weights = weights_of(vector, messages)
        self._rules = np.concatenate([heuristic.rule() for heuristic in HEURISTICS])
        self._told: weakref.WeakKeyDictionary[Table, tuple[Table, Told]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()  # one scheduler may serve several threads at once

    def __str__(self) -> str:
        return "learned:plan"

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        """Drive a loaded state to its end. `key` is not used: nothing is drawn."""
        with self._lock:
            if table not in self._told:
                self._told[table] = told_table(table)
            told = self._told[table]
        known, moved = new_known(state)
        trial, _ = new_known(state)
        run_planned(
            state,
            table,
            *told,
            learned_for(self._weights, self.messages, state, table),
            Room(
                Plan(
                    proposals=records(self.proposals, PROPOSAL),
                    stage_probability=np.zeros(len(known.stages)),
                ),
                known,
                moved,
                trial,
                new_desk(self._rules[:1].copy(), known),
            ),
            self._rules,
            self.least_probability,
            self.budget,
        )


def learned_for(weights: Weights, messages: bool, state: State, table: Table) -> Learned:
    """A policy with room to decide in a loaded state, and in what is known of it."""
    jobs, stages = len(state.jobs) + 1, len(state.stages) + 1  # see new_known
    edges = int(table.stages["children"].max(initial=0)) * stages if messages else 1
    return Learned(
        weights,
        new_scratch(jobs, stages, int(table.templates["stages"].max(initial=1))),
        new_rows(1, stages, jobs, edges),
        limit_levels(int(state.clock[0]["executors"])),
        messages,
    )


def load_planner(path: str | Path) -> PlanningScheduler:
    """The policy in a checkpoint, or in the best one of a run directory, as one that looks ahead.

    Raises:
        CheckpointError: as `load_policy`.
    """
    policy = read_policy(path)
    return PlanningScheduler(policy.vector, messages=policy.messages)
