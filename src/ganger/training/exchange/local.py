"""The exchange on one machine: actors are threads, everything is handed over by reference."""

import threading
from collections import deque
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from ganger.errors import TrainingError
from ganger.training.exchange import (
    Parameters,
    ParameterSource,
    Publisher,
    Trajectory,
    TrajectorySink,
    TrajectorySource,
    Waiting,
)

# A signal handler may close the exchange after a waiting thread has looked and before it sleeps,
# and the notification is lost; so nobody sleeps longer than this without looking again.
_LOOK_AGAIN_S = 0.25


class Stopwatch:
    """Adds up the time that any number of threads spend inside; read at any moment.

    Used under its owner's lock.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._total_s = 0.0  # of what has left, less the entry times of what is inside

    def __enter__(self) -> None:
        self._inside += 1
        self._total_s -= monotonic()

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        self._total_s += monotonic()

    @property
    def seconds(self) -> float:
        # The two sums are of like size and cancel: rounding must not make it negative.
        return max(0.0, self._total_s + self._inside * monotonic())


class ParameterStore(Publisher, ParameterSource):
    """The newest parameters, swapped by reference: actors read without a lock."""

    def __init__(self, vector: NDArray[np.float32], version: int = 0) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._waited: dict[int, Stopwatch] = {}
        self._newest = Parameters(_frozen_copy(vector), version)

    def publish(self, vector: NDArray[np.float32], version: int) -> None:
        """Make parameters the newest; the vector is copied.

        Raises:
            TypeError: if the vector's kind or length differs from the first one's.
            AssertionError: if the version is not higher than the newest.
        """
        vector = _frozen_copy(vector)
        with self._changed:
            newest = self._newest
            if vector.shape != newest.vector.shape:
                raise TypeError(
                    f"vector has {vector.size} parameters; expected {newest.vector.size}"
                )
            assert version > newest.version, f"version {version} after {newest.version}"
            self._newest = Parameters(vector, version)
            self._changed.notify_all()

    def newest(self) -> Parameters:
        """The newest parameters, at once."""
        return self._newest

    def wait_for(self, version: int, *, actor: int) -> Parameters | None:
        """The first parameters seen of at least this version; None once the run is over.

        For the synchronous mode, where an actor may not run ahead.
        """
        with self._changed, self._waited.setdefault(actor, Stopwatch()):
            while not self._closed:
                if self._newest.version >= version:
                    return self._newest
                self._changed.wait(_LOOK_AGAIN_S)
        return None

    def waited_s(self) -> dict[int, float]:
        """Seconds that each actor has spent in `wait_for`."""
        with self._changed:
            return {actor: watch.seconds for actor, watch in self._waited.items()}

    def close(self) -> None:
        """End the run: nobody waits any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _frozen_copy(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy that cannot be written, on a cache line's boundary as wide vector loads like it."""
    if vector.dtype != np.float32 or vector.ndim != 1:
        raise TypeError(f"parameters are {vector.dtype}{list(vector.shape)}; expected float32[n]")
    room = np.empty(vector.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + vector.nbytes].view(np.float32)[:] = vector
    room.flags.writeable = False  # here, or a view of it could be made writable again
    return room[start : start + vector.nbytes].view(np.float32)


class TrajectoryQueue(TrajectorySink, TrajectorySource):
    """A bounded queue of trajectories: when it is full, actors wait; nothing is ever dropped.

    Every wait is accounted to its side, so that a run can report how idle each side is: actors
    that wait mean that learning is the bottleneck, a learner that waits means that acting is.
    """

    def __init__(self, capacity: int, store: ParameterStore | None = None) -> None:
        """Hold at most `capacity` trajectories.

        A `store` closes with the queue, and what actors wait for it counts in `waiting`.
        """
        assert capacity > 0, f"capacity is {capacity}"
        self.capacity = capacity
        self._store = store
        # Its lock is reentrant: a signal handler may close a queue that its own thread holds.
        self._changed = threading.Condition()
        self._waiting: deque[Trajectory] = deque()
        self._closed = False
        self._failure: tuple[int, BaseException] | None = None
        self._actors_waited: dict[int, Stopwatch] = {}
        self._learner_waited = Stopwatch()

    @property
    def depth(self) -> int:
        """How many trajectories wait for the learner."""
        return len(self._waiting)

    def wait_for_room(self, actor: int) -> bool:
        """Wait while the queue is full; False once the run is over."""
        with self._changed:
            waited = self._actors_waited.setdefault(actor, Stopwatch())
            if len(self._waiting) >= self.capacity:
                with waited:
                    while not self._closed and len(self._waiting) >= self.capacity:
                        self._changed.wait(_LOOK_AGAIN_S)
            return not self._closed

    def put(self, trajectory: Trajectory) -> bool:
        """Hand over a trajectory, waiting while the queue is full; False once the run is over."""
        with self._changed:
            if not self.wait_for_room(trajectory.header.actor):
                return False
            self._waiting.append(trajectory)
            self._changed.notify_all()
            return True

    def get(self, count: int, *, timeout_s: float | None = None) -> list[Trajectory]:
        """Take `count` trajectories in order of arrival, waiting until there are so many.

        They leave the queue as they come, so `count` may exceed its capacity. Fewer come back after
        the timeout, and when the queue was closed: what was left, in the end nothing.

        Raises:
            TrainingError: if an actor died; its exception is the cause.
        """
        taken: list[Trajectory] = []
        deadline = None if timeout_s is None else monotonic() + timeout_s
        with self._changed:
            while True:
                if self._failure is not None:
                    actor, error = self._failure
                    raise TrainingError(
                        f"actor {actor} died: {type(error).__name__}: {error}"
                    ) from error
                before = len(taken)
                while self._waiting and len(taken) < count:
                    taken.append(self._waiting.popleft())
                if len(taken) > before:
                    self._changed.notify_all()
                left_s = _LOOK_AGAIN_S if deadline is None else deadline - monotonic()
                if len(taken) >= count or self._closed or left_s <= 0:
                    return taken
                with self._learner_waited:
                    self._changed.wait(min(left_s, _LOOK_AGAIN_S))

    def fail(self, actor: int, error: BaseException) -> None:
        """Hand an actor's exception to the learner and end the run; the first one counts."""
        with self._changed:
            if self._failure is None:
                self._failure = (actor, error)
        self.close()

    def close(self) -> None:
        """End the run: whoever waits, on either side, stops waiting.

        A signal handler may call it.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._store is not None:
            self._store.close()

    def counts(self) -> dict[str, int]:
        """It drops nothing and restarts nobody."""
        return {}

    @property
    def closed(self) -> bool:
        """Whether the run is over, so that an actor can stop before its trajectory is full."""
        return self._closed

    def waiting(self) -> Waiting:
        """Seconds that each side has waited for the other so far, a wait in progress included."""
        with self._changed:
            actors_s = {actor: watch.seconds for actor, watch in self._actors_waited.items()}
            learner_s = self._learner_waited.seconds
        for actor, seconds in (self._store.waited_s() if self._store else {}).items():
            actors_s[actor] = actors_s.get(actor, 0.0) + seconds
        return Waiting(actors_s, learner_s)
