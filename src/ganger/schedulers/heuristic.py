"""What all built-in heuristics share: how they are spelled, and that they run compiled."""

import math
from typing import Any, ClassVar, Literal, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.errors import SchedulerError
from ganger.schedulers.rule import choose, new_desk, run_episode
from ganger.simulator.observation import Decision, Observation
from ganger.simulator.observing import decision_of, state_of
from ganger.simulator.state import State
from ganger.simulator.table import Table
from ganger.streams import Stream, key


class Heuristic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scheduler with parameters; printed as `name:parameter=value,...`, defaults left out."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            if get_origin(field.type) is Literal:
                value, choices = getattr(self, field.name), get_args(field.type)
                if value not in choices:
                    raise SchedulerError(
                        f"{self.name}: {field.name} is {value!r}; expected {' or '.join(choices)}"
                    )

    def rule(self) -> NDArray[Any]:
        """The compiled rule with these parameters."""
        raise NotImplementedError  # each heuristic gives its own; msgspec's Structs take no ABC

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        """Drive a loaded state until no event is left. Safe to call from several threads."""
        run_episode(state, table, new_desk(self.rule(), state), key)

    def choose(self, state: State, table: Table) -> tuple[int, int]:
        """The stage to serve and the limit of its job; stage -1: leave the executors idle."""
        s, limit = choose(state, table, new_desk(self.rule(), state), key(0, Stream.SCHEDULER))
        return int(s), int(limit)

    def decide(self, observation: Observation) -> Decision | None:
        """The same decision, of a cluster that need not be simulated."""
        state, table = state_of(observation)
        s, limit = self.choose(state, table)
        return None if s < 0 else decision_of(observation, state, s, limit)

    def __str__(self) -> str:
        given = [
            f"{field.name}={_spelled(value)}"
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default and value is not None
        ]
        return self.name + (":" + ",".join(given) if given else "")

    def check_range(self, parameter: str, low: float, high: float) -> None:
        """Refuse a number outside [low, high]."""
        value = getattr(self, parameter)
        if not low <= value <= high:  # NaN too
            raise SchedulerError(
                f"{self.name}: {parameter} is {value}; expected {low:g} to {high:g}"
            )


def _spelled(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)
