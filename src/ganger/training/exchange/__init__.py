"""What passes between actors and the learner: trajectories one way, parameters the other.

The acting and the learning loop see only these protocols, so they are the same whether the other
side is a thread (`local`) or another machine (`ray`). One object may fill several of them.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Header",
    "ParameterSource",
    "Parameters",
    "Publisher",
    "Trajectory",
    "TrajectorySink",
    "TrajectorySource",
    "Waiting",
]


class Header(NamedTuple):
    """Where a trajectory comes from. Headers sort by actor, then in the order of acting."""

    actor: int
    generation: int
    """How often this actor was started anew; 0 at first."""

    sequence: int
    """Counts this actor's trajectories of this generation, from 0."""

    policy_version: int
    """The oldest parameters that took part; the learner's version minus this one is the lag."""


class Trajectory(NamedTuple):
    """One actor's decisions in a row. The exchange never looks into the payload."""

    header: Header
    payload: object


class Parameters(NamedTuple):
    """A policy as one flat vector that nobody can write to, and its version."""

    vector: NDArray[np.float32]
    version: int


class Waiting(NamedTuple):
    """Seconds each side has waited for the other so far, a wait in progress included."""

    actors_s: dict[int, float]
    """By actor; for parameters as well as for room in the queue."""

    learner_s: float


class Publisher(Protocol):
    """How the learner hands out parameters."""

    def publish(self, vector: NDArray[np.float32], version: int) -> None:
        """Make parameters the newest; the vector is copied. Versions only grow."""


class ParameterSource(Protocol):
    """How an actor gets parameters."""

    def newest(self) -> Parameters:
        """The newest parameters, at once."""

    def wait_for(self, version: int, *, actor: int) -> Parameters | None:
        """The newest parameters once they are of at least this version; None once the run is over.

        For the synchronous mode, where an actor may not run ahead.
        """


class TrajectorySink(Protocol):
    """How an actor hands over what it did."""

    def wait_for_room(self, actor: int) -> bool:
        """Wait while a trajectory would have to wait; False once the run is over.

        Asked before acting rather than after, so that what is handed over was made by parameters
        that were the newest when there was room: the policy lag stays near one update.
        """

    def put(self, trajectory: Trajectory) -> bool:
        """Hand over, waiting for room; False once the run is over, when the actor should return."""

    def fail(self, actor: int, error: BaseException) -> None:
        """Tell the learner why this actor died."""


class TrajectorySource(Protocol):
    """How the learner gets what the actors did."""

    def get(self, count: int, *, timeout_s: float | None = None) -> list[Trajectory]:
        """The next `count` trajectories in order of arrival; fewer after the timeout or the end.

        Raises:
            TrainingError: if an actor died; its exception is the cause.
        """

    @property
    def depth(self) -> int:
        """How many trajectories wait for the learner."""

    def waiting(self) -> Waiting:
        """How long each side has waited for the other."""

    def counts(self) -> dict[str, int]:
        """What else this exchange counts, by name, for the metrics."""

    def close(self) -> None:
        """End the run: whoever waits, on either side, stops waiting."""
