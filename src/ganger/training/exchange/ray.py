"""The exchange beyond one machine: actors are processes of a Ray cluster, each with acting threads.

The learner asks, the actors answer. A request says which parameters are the newest; its answer is
one flat buffer with a header (`packing`). An acting thread has one request at a time, two while the
learner waits, and gets none while enough trajectories wait for the learner: so it acts with
parameters that were the newest when there was room, as the threads of `local` do.

A process that dies, with its node or alone, is replaced by one of the next generation, which has
random streams of its own. What it was doing is lost, and nothing else.
"""

import logging
import os
import shutil
import signal
import socket
import tempfile
import textwrap
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.errors import ConfigError, MissingExtraError, TrainingError
from ganger.simulator.table import Table
from ganger.training.actor import Actor
from ganger.training.config import TrainConfig
from ganger.training.exchange import Header, Trajectory, TrajectorySource, Waiting
from ganger.training.exchange.local import ParameterStore, Stopwatch, TrajectoryQueue
from ganger.training.exchange.packing import DamagedError, PackedHeader, pack, unpack

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ImportError:
    raise MissingExtraError("Training on Ray", "ray") from None

_log = logging.getLogger(__name__)

LAG_BOUND = 8
"""Updates. What was acted with older parameters is not learned from, and counted."""
DEATHS, DEATHS_WITHIN_S = 4, 120.0
"""An actor that dies more often within that time ends the run."""
_REACH_S = 10.0
_LOOK_S = 0.1  # how often the pump looks whether there is room again, or an end
_STORE_BYTES = 2**28  # of a local Ray's object store, at least
_STORE_BYTES_PER_THREAD = 2**26  # a trajectory has some 5 MB; two may be under way, two wait


class Process(NamedTuple):
    """What an acting process says of itself."""

    pid: int
    node: str
    memory_mb: float
    """What is its own and not shared (USS)."""
    torch: bool
    """Whether it loaded torch, which it should not."""


class ActingProcess:
    """What runs in a process of the cluster: the actors of its threads, and the newest policy."""

    def __init__(
        self, config: TrainConfig, table: dict[str, NDArray[Any]], first: int, generation: int
    ) -> None:
        shared = Table(**table)  # read in place: one copy for all processes of a node
        self._actors = [
            Actor(config, shared, first + k, generation) for k in range(config.threads_per_actor)
        ]
        self._store: ParameterStore | None = None
        self._renewing = threading.Lock()

    def about(self) -> Process:
        """Say that it is ready, and who it is."""
        import sys

        kb = {"Private_Clean": 0, "Private_Dirty": 0}
        with suppress(OSError), open("/proc/self/smaps_rollup") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name in kb:
                    kb[name] = int(rest.split()[0])
        node = ray.get_runtime_context().get_node_id()
        return Process(os.getpid(), node, sum(kb.values()) / 1e3, "torch" in sys.modules)

    def act(
        self, thread: int, sequence: int, version: int, parameters: list[Any]
    ) -> tuple[PackedHeader, NDArray[np.uint8]]:
        """One trajectory, made with those parameters or newer ones.

        `parameters`: a reference in a list, which Ray does not follow by itself: it is fetched only
        if this process has not done so.
        """
        actor = self._actors[thread]
        with self._renewing:
            if self._store is None:
                self._store = ParameterStore(ray.get(parameters[0]), version)
            elif version > self._store.newest().version:
                self._store.publish(ray.get(parameters[0]), version)
        newest = self._store.newest()
        header = Header(actor.index, actor.generation, sequence, newest.version)
        return pack(header, actor.act(newest))


class _Thread:
    """One acting thread of a process, as the learner's side sees it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.sequence = 0
        self.asked: deque[tuple[Any, Any]] = deque()  # references of headers and of buffers
        self.idle = Stopwatch()
        self.is_idle = False


class _Slot:
    """The place of an acting process, whichever generation is in it."""

    def __init__(self, index: int, generation: int, threads: int) -> None:
        self.index, self.generation = index, generation
        self.threads = [_Thread(index * threads + k) for k in range(threads)]
        self.handle: Any = None
        self.starting: Any = None  # reference of what it says of itself when it is ready
        self.process: Process | None = None
        self.deaths: deque[float] = deque()
        self.start_at: float | None = None


class RayExchange(TrajectorySource):
    """Keeps acting processes busy, and gives the learner what they made.

    All talk with Ray is one thread's, the pump; the learner meets only a queue.
    """

    def __init__(
        self,
        config: TrainConfig,
        table: Table,
        store: ParameterStore,
        generation: int = 0,
        process: type = ActingProcess,
        places: range | None = None,
    ) -> None:
        """Start the processes. `process`: what runs in them; `places`: those of one learner."""
        self._config, self._store, self._process = config, store, process
        threads = config.threads_per_actor
        places = range(config.actors) if places is None else places
        self._capacity = len(places) * threads
        # Two requests of each thread may be answered at once: the pump itself never waits for room.
        self._queue = TrajectoryQueue(3 * self._capacity, store)
        self._table = ray.put({name: getattr(table, name) for name in Table.FIELDS})
        self._sent: tuple[int, Any] = (-1, None)
        self._counted = {"actor_restarts": 0, "dropped_damaged": 0, "dropped_old": 0}
        self._failure: TrainingError | None = None
        self._learner_waits = threading.Event()
        self._closing = threading.Event()
        self._locked = threading.Lock()  # around the stopwatches
        self._slots = [_Slot(i, generation, threads) for i in places]
        # A group of one thread for each actor: a shared pool would run two requests of an actor at
        # once, in the same memory.
        groups = {f"actor-{k}": 1 for k in range(threads)}
        self._remote: Any = ray.remote(concurrency_groups=groups)(process)  # type: ignore[call-overload]
        for slot in self._slots:
            self._start(slot)
        self._pump = threading.Thread(target=self._run, name="ray-exchange")
        self._pump.start()

    @property
    def depth(self) -> int:
        """How many trajectories wait for the learner."""
        return self._queue.depth

    def processes(self) -> dict[int, Process]:
        """Those that are ready, by their place."""
        return {s.index: s.process for s in self._slots if s.process is not None}

    def counts(self) -> dict[str, int]:
        """Processes that act now, restarts, and trajectories that were dropped, by reason."""
        return {"actors_acting": len(self.processes())} | self._counted

    def get(self, count: int, *, timeout_s: float | None = None) -> list[Trajectory]:
        """The next trajectories in order of arrival; fewer after the timeout or the end.

        Raises:
            TrainingError: if a process died too often, with the reason.
        """
        self._learner_waits.set()
        taken = self._queue.get(count, timeout_s=timeout_s)
        self._learner_waits.clear()
        if self._failure is not None:
            raise self._failure
        newest = self._store.newest().version
        fresh = [t for t in taken if newest - t.header.policy_version <= LAG_BOUND]
        if old := len(taken) - len(fresh):
            self._counted["dropped_old"] += old
            _log.warning("%d trajectories were older than %d updates: dropped", old, LAG_BOUND)
        return fresh

    def waiting(self) -> Waiting:
        """Seconds that each acting thread had no request, and the learner no trajectory."""
        with self._locked:
            actors_s = {t.index: t.idle.seconds for s in self._slots for t in s.threads}
        return Waiting(actors_s, self._queue.waiting().learner_s)

    def close(self) -> None:
        """End the run, and the processes."""
        self._closing.set()
        self._queue.close()
        if self._pump is not threading.current_thread():
            self._pump.join()
        for slot in self._slots:
            self._kill(slot)

    # --- the pump

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                for slot in self._slots:
                    if slot.start_at is not None and time.monotonic() >= slot.start_at:
                        self._start(slot)
                self._ask()
                self._take()
        except Exception as error:  # the learner must not wait for a pump that is no more
            self._fail(f"the exchange with Ray failed: {_told(error)}")

    def _ask(self) -> None:
        """Give requests to threads that should have one more."""
        room = self._queue.depth < self._capacity
        wanted = (2 if self._learner_waits.is_set() else 1) if room else 0
        for slot in self._slots:
            if slot.process is None:
                continue
            for k, thread in enumerate(slot.threads):
                while len(thread.asked) < wanted:
                    version, parameters = self._newest()
                    thread.asked.append(
                        slot.handle.act.options(
                            num_returns=2, concurrency_group=f"actor-{k}"
                        ).remote(k, thread.sequence, version, [parameters])
                    )
                    thread.sequence += 1
                self._watch(thread, idle=not thread.asked)

    def _take(self) -> None:
        """Wait a moment for answers, and hand them to the learner."""
        # The buffer, not its header: waiting for it fetches it from another node, all side by side.
        asked = {t.asked[0][1]: (s, t) for s in self._slots for t in s.threads if t.asked}
        starting = {s.starting: s for s in self._slots if s.starting is not None}
        pending = [*starting, *asked]
        if not pending:
            self._closing.wait(_LOOK_S)
            return
        done, _ = ray.wait(pending, timeout=_LOOK_S)
        if done and len(pending) > 1:
            done, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
        for reference in done:
            if (beginner := starting.get(reference)) is not None:
                self._begin(beginner)
                continue
            slot, thread = asked[reference]
            if not thread.asked or thread.asked[0][1] is not reference:
                continue  # its process died a moment ago, and this went with it
            try:
                header, buffer = ray.get(list(thread.asked[0]))
                trajectory = unpack(header, buffer)
            except DamagedError as error:
                self._counted["dropped_damaged"] += 1
                self._lost(slot, error)
            except RayError as error:
                self._lost(slot, error)
            else:
                thread.asked.popleft()
                self._queue.put(trajectory)

    def _begin(self, slot: _Slot) -> None:
        try:
            slot.process = ray.get(slot.starting)
            slot.starting = None
        except RayError as error:
            self._lost(slot, error)

    def _newest(self) -> tuple[int, Any]:
        """The newest parameters as Ray keeps them: put once, when first asked for."""
        newest = self._store.newest()
        if newest.version != self._sent[0]:
            self._sent = newest.version, ray.put(newest.vector)
        return self._sent

    def _start(self, slot: _Slot) -> None:
        threads = self._config.threads_per_actor
        slot.process = slot.start_at = None
        slot.handle = self._remote.options(
            num_cpus=threads, max_restarts=0, scheduling_strategy="SPREAD"
        ).remote(self._config, self._table, slot.index * threads, slot.generation)
        slot.starting = slot.handle.about.remote()

    def _lost(self, slot: _Slot, error: BaseException) -> None:
        """Replace a process by one of the next generation, unless it dies too often."""
        now = time.monotonic()
        slot.deaths.append(now)
        while slot.deaths[0] < now - DEATHS_WITHIN_S:
            slot.deaths.popleft()
        self._kill(slot)
        if len(slot.deaths) > DEATHS:
            self._fail(
                f"actor {slot.index} died {len(slot.deaths)} times in {DEATHS_WITHIN_S:.0f} s; "
                f"the last time: {_told(error)}"
            )
            return
        self._counted["actor_restarts"] += 1
        slot.generation += 1
        last = (_told(error).strip().splitlines() or [""])[-1]
        _log.warning("actor %d died and starts anew: %s", slot.index, textwrap.shorten(last, 160))
        # At once, but not again and again: Ray takes seconds to notice that a node is dead, and may
        # place the next one there, too.
        again = len(slot.deaths) - 1
        slot.start_at = now + (2.0 ** (again - 1) if again else 0.0)

    def _kill(self, slot: _Slot) -> None:
        slot.process = slot.starting = None
        for thread in slot.threads:
            thread.asked.clear()
            thread.sequence = 0
            self._watch(thread, idle=False)
        if slot.handle is not None:
            with suppress(RayError):
                ray.kill(slot.handle)
            slot.handle = None

    def _fail(self, message: str) -> None:
        self._failure = TrainingError(message)
        self._closing.set()
        self._queue.close()

    def _watch(self, thread: _Thread, *, idle: bool) -> None:
        with self._locked:
            if idle and not thread.is_idle:
                thread.idle.__enter__()
            elif thread.is_idle and not idle:
                thread.idle.__exit__()
            thread.is_idle = idle


def _told(error: BaseException) -> str:
    """What happened, with the traceback of where it did."""
    if isinstance(error, RayTaskError | RayError | DamagedError):
        return str(error)
    return "".join(traceback.format_exception(error))


# --- the cluster


def _reach(address: str) -> None:
    """Ray itself tries for five minutes where nobody listens, and says little."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ConfigError(
            f"address is {address!r}; expected auto, or HOST:PORT of a cluster's head node, as "
            "`ray start --head` prints it"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster at {address}: {error}; start one with `ray start --head`, or leave "
            "out address for a local one"
        ) from None


@contextmanager
def cluster(config: TrainConfig) -> Iterator[None]:
    """A Ray cluster: the one that is named, else a local one for as long as this lasts.

    Raises:
        ConfigError: if no cluster answers at the address.
    """
    if config.address not in (None, "auto"):
        _reach(config.address)
    if ray.is_initialized():
        raise ConfigError("this process uses Ray already; end that first with ray.shutdown()")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    directory = tempfile.mkdtemp(prefix="ganger-ray-") if config.address is None else None
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": logging.ERROR,
    }
    try:
        try:
            if directory is not None:
                ray.init(
                    # Never a cluster that happens to run here, nor $RAY_ADDRESS.
                    address="local",
                    num_cpus=config.acting_threads + config.learners - 1,
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES
                    + _STORE_BYTES_PER_THREAD * config.acting_threads,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=directory,
                    **quiet,
                )
            else:
                ray.init(address=config.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = config.address or "a local one"
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                f"no Ray cluster at {where}: {reason}; start one with `ray start --head`, or leave "
                "out address for a local one"
            ) from None
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():  # Ray puts its own there
                signal.signal(number, handler)
        yield
    finally:
        ray.shutdown()
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
