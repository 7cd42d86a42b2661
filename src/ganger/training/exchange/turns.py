"""The synchronous exchange: acting and learning take turns in one thread, so a run repeats."""

from collections.abc import Callable
from time import perf_counter

from ganger.training.exchange import Header, Parameters, Trajectory, TrajectorySource, Waiting


class Turns(TrajectorySource):
    """Whoever asks for trajectories makes them act: no queue, no threads, no lag."""

    def __init__(
        self, actors: list[Callable[[Parameters], object]], newest: Callable[[], Parameters]
    ) -> None:
        """`actors`: what makes each of them act, with the parameters that `newest` gives."""
        self._actors = actors
        self._newest = newest
        self._sequence = 0
        self._learner_s = 0.0

    def get(self, count: int, *, timeout_s: float | None = None) -> list[Trajectory]:
        """One trajectory of each actor, in their order; `count` is how many there are."""
        assert count == len(self._actors), f"{count} trajectories of {len(self._actors)} actors"
        begin = perf_counter()
        parameters = self._newest()
        acted = [
            Trajectory(Header(actor, 0, self._sequence, parameters.version), act(parameters))
            for actor, act in enumerate(self._actors)
        ]
        self._sequence += 1
        self._learner_s += perf_counter() - begin
        return acted

    def waiting(self) -> Waiting:
        """The learner's turns of waiting; the actors' are its turns of learning."""
        return Waiting({}, self._learner_s)

    @property
    def depth(self) -> int:
        """Nothing waits."""
        return 0

    def counts(self) -> dict[str, int]:
        """It drops nothing and restarts nobody."""
        return {}

    def close(self) -> None:
        """Nobody waits."""
