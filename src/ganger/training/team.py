"""The learners of a run: the first one here, the others in processes of their own.

Each has its own share of the actors, learns from their trajectories, and adds up its gradients with
the others' (`group`), so that all have the same parameters after every update. A learner that dies
takes nothing with it: the first one goes back to where the update began, and starts the others
anew. They hold nothing that it has not.
"""

import logging
import multiprocessing
import shutil
import signal
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from ganger.errors import TrainingError
from ganger.evaluation.episodes import usable_cores
from ganger.simulator.table import Table
from ganger.training import engines
from ganger.training.actor import Actor
from ganger.training.cells import Cells
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters, TrajectorySource
from ganger.training.exchange.local import ParameterStore
from ganger.training.group import (
    Alone,
    GroupError,
    Together,
    meet,
    meeting_place,
    stay_on_this_machine,
)
from ganger.training.learner import Learner, keep_freed_memory

_log = logging.getLogger(__name__)

ATTEMPTS = 5
"""At one update; then the run ends."""
_LOOK_S = 0.2


class Start(NamedTuple):
    """What another learner begins with."""

    config: TrainConfig
    table: dict[str, NDArray[Any]]
    cells: Cells
    rank: int
    meeting: str
    """Where the learners meet."""
    generation: int
    state: dict[str, NDArray[Any]]
    """The first learner's."""


class Peer(Protocol):
    """Another learner's process, as the first one sees it."""

    pid: int | None

    def why_dead(self) -> str | None:
        """What ended it, with its traceback if there is one; None while it lives."""

    def kill(self) -> None:
        """End it, and all that it started."""


def learner_threads(config: TrainConfig) -> int:
    """That a learner computes with: on Ray others may be on the same machine, or none."""
    if config.learners == 1:
        return usable_cores()
    return max(1, usable_cores() // config.learners) if config.engine == "threads" else 1


class Team:
    """The first learner and its peers. Use it in `with`: leaving ends the peers."""

    def __init__(
        self,
        config: TrainConfig,
        table: Table,
        learner: Learner,
        generation: int,
        start: Callable[[Start], Peer] | None = None,
    ) -> None:
        """`start`: how a peer comes to be; by the engine unless given."""
        self._config, self._table, self._learner = config, table, learner
        self._generation = generation
        self._start = start or (_start_process if config.engine == "threads" else _start_on_ray)
        self._group: Together | None = None
        self._restarts = 0
        self._directory: Path | None = None
        self.peers: list[Peer] = []

    def __enter__(self) -> Self:
        if self._config.learners > 1:
            state = self._learner.state()
            try:
                self._together(state)
            except GroupError as error:
                self._again(state, error, 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def update(
        self, trajectories: Sequence[Any], progress: float, counts: dict[str, int]
    ) -> dict[str, Any]:
        """One update of all learners.

        Args:
            trajectories: this learner's.
            progress: in [0, 1], places the schedules.
            counts: of its exchange.

        Returns:
            The update's metrics, with the largest lag and generation of all learners' trajectories
            and their counts added up.

        Raises:
            TrainingError: if peers die again and again, with what the last one said; or as the
                learner.
        """
        learner = self._learner
        if self._group is None:
            return _step(learner, trajectories, progress, counts)
        before = learner.state()
        for attempt in range(ATTEMPTS):
            try:
                learner.group.tell(np.array([progress]))
                metrics = _step(learner, trajectories, progress, counts)
                self._generation = max(self._generation, metrics["generation"])
                return metrics | {"learner_restarts": self._restarts}
            except GroupError as error:
                self._again(before, error, attempt)
        raise AssertionError("the last attempt raises")

    def _again(self, state: dict[str, NDArray[Any]], error: GroupError, attempt: int) -> None:
        """Back to where the update began, with new peers."""
        time.sleep(_LOOK_S)  # what a dying process has to say may still be under way
        reasons = [why for peer in self.peers if (why := peer.why_dead())]
        reason = next((why for why in reasons if "GroupError" not in why), str(error))
        if attempt == ATTEMPTS - 1:
            raise TrainingError(f"learners died {ATTEMPTS} times at one update; last: {reason}")
        last = textwrap.shorten(reason.strip().splitlines()[-1], 160)
        _log.warning("a learner died, and all start anew from this update: %s", last)
        self._restarts += 1
        self._generation += 1
        self._end()
        self._learner.restore(state)
        try:
            self._together(state)
        except GroupError as another:
            self._again(state, another, attempt + 1)

    def _together(self, state: dict[str, NDArray[Any]]) -> None:
        """Start the peers, and meet them."""
        config = self._config
        size = config.learners
        if config.engine == "threads":
            stay_on_this_machine()
            self._directory = self._directory or Path(tempfile.mkdtemp(prefix="ganger-learners-"))
            place, address = meeting_place(self._directory, "", size)
        else:
            import ray

            place, address = meeting_place(None, ray.util.get_node_ip_address(), size)
        fields = {name: getattr(self._table, name) for name in Table.FIELDS}
        for rank in range(1, size):
            self.peers.append(
                self._start(
                    Start(
                        config,
                        fields,
                        self._learner.cells,
                        rank,
                        address,
                        self._generation,
                        state,
                    )
                )
            )
        while not place.check([_ready(rank) for rank in range(1, size)]):
            for peer in self.peers:
                if (why := peer.why_dead()) is not None:
                    raise GroupError(why)
            time.sleep(_LOOK_S)
        self._group = Together(place, 0, size, config.device)
        self._learner.group = self._group

    def _end(self) -> None:
        for peer in self.peers:
            peer.kill()
        self.peers = []
        self._learner.group = Alone()
        if self._group is not None:
            self._group.close()
            self._group = None


def collect(exchange: TrajectorySource, wanted: int, stopped: Callable[[], bool]) -> list[Any]:
    """So many trajectories in order of arrival; fewer if asked to stop."""
    collected: list[Any] = []
    while len(collected) < wanted and not stopped():
        collected += exchange.get(wanted - len(collected), timeout_s=_LOOK_S)
    return collected


def follow(start: Start) -> None:
    """A learner that is not the first: learns along until the first one is gone.

    Raises:
        GroupError: when it is.
    """
    config, rank = start.config, start.rank
    torch.set_num_threads(1)
    keep_freed_memory()
    if config.engine == "threads":
        stay_on_this_machine()
    table = Table(**start.table)
    learner = Learner(config, start.cells, start.state["policy"], threads=learner_threads(config))
    learner.restore(start.state)
    places = config.places(rank)
    actors = engines.actors_here(config, table, start.generation, places)
    warm_up(config, table, learner)
    store = ParameterStore(learner.policy.vector(), learner.updates)
    place = meet(start.meeting, config.learners)
    place.set(_ready(rank), "")
    learner.group = Together(place, rank, config.learners, config.device)
    with engines.acting(config, table, store, actors, start.generation, places) as exchange:
        while True:
            trajectories = collect(exchange, config.acting_threads // config.learners, _never)
            progress = np.zeros(1)
            learner.group.tell(progress)
            _step(learner, trajectories, float(progress[0]), exchange.counts())
            store.publish(learner.policy.vector(), learner.updates)


def warm_up(config: TrainConfig, table: Table, learner: Learner) -> None:
    """Compile before any clock starts and before any thread does, then forget what was acted."""
    few = msgspec.structs.replace(
        config,
        environments=2 * len(config.cells),
        actors=1,
        learners=1,
        threads_per_actor=1,
        steps=4,
    )
    short = Actor(few, table, 0)
    acted = short.act(Parameters(learner.policy.vector(), 0))
    trial = Learner(config, learner.cells, learner.policy.vector())
    trial.update([acted.samples], 0.0)
    trial.close()


def _step(
    learner: Learner,
    trajectories: Sequence[Any],
    progress: float,
    counts: dict[str, int],
) -> dict[str, Any]:
    """An update, and what all learners together have to report."""
    before = learner.updates
    metrics: dict[str, Any] = dict(
        learner.update([trajectory.payload.samples for trajectory in trajectories], progress)
    )
    headers = [trajectory.header for trajectory in trajectories]
    most = np.array(
        [
            max(before - header.policy_version for header in headers),
            max(header.generation for header in headers),
        ],
        np.float64,
    )
    learner.group.largest(most)
    sums = np.array(list(counts.values()), np.float64)
    if counts:
        learner.group.add_up(sums)
    metrics |= {"lag_max": int(most[0]), "generation": int(most[1])}
    return metrics | {name: int(n) for name, n in zip(counts, sums, strict=True)}


def _ready(rank: int) -> str:
    return f"ready/{rank}"


def _never() -> bool:
    return False


# --- peers


class _Process(Peer):
    """A process on this machine."""

    def __init__(self, start: Start) -> None:
        context = multiprocessing.get_context("spawn")  # nothing of this process's threads
        self._talk, its = context.Pipe()
        self._process = context.Process(
            target=_follow_and_tell, args=(its,), name=f"learner-{start.rank}", daemon=True
        )
        self._process.start()
        its.close()
        self.pid = self._process.pid
        self._last: str | None = None
        # Not as an argument: a process that dies at its start would never read it, nor would this
        # one notice.
        with suppress(ConnectionError):
            self._talk.send(start)

    def why_dead(self) -> str | None:
        if self._last is None and self._talk.poll():
            try:
                self._last = self._talk.recv()
            except (EOFError, ConnectionError):  # it ended without a word
                self._process.join(_LOOK_S)
                self._last = f"learner process ended with exit code {self._process.exitcode}"
        return self._last

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._talk.close()


def _follow_and_tell(talk: Connection) -> None:
    # Ctrl-C reaches all processes of a terminal; the first learner then ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        follow(talk.recv())
    except BaseException:
        with suppress(ConnectionError):
            talk.send(traceback.format_exc())


def _start_process(start: Start) -> Peer:
    return _Process(start)


class _OnRay(Peer):
    """A process of the Ray cluster."""

    def __init__(self, start: Start) -> None:
        import ray

        self._ray = ray
        remote: Any = ray.remote(_Following)
        self._handle = remote.options(
            num_cpus=1,
            num_gpus=1 if start.config.device == "cuda" else 0,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        ).remote()
        self._asked = self._handle.follow.remote(start)
        self.pid = None

    def why_dead(self) -> str | None:
        done, _ = self._ray.wait([self._asked], timeout=0)
        if not done:
            return None
        try:
            self._ray.get(done[0])
        except self._ray.exceptions.RayError as error:
            return str(error)
        return "it ended"

    def kill(self) -> None:
        self._ray.kill(self._handle)


class _Following:
    """What runs in it."""

    def follow(self, start: Start) -> None:
        """See `follow`."""
        follow(start)


def _start_on_ray(start: Start) -> Peer:
    return _OnRay(start)
