"""The driver of one Spark application: a gate in front of marked jobs, and a thread that opens it.

Whatever becomes of the scheduler, of its guard or of this thread: the gate opens.
"""

import contextlib
import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from ganger.errors import ConfigError
from ganger.serving.estimates import Estimates
from ganger.serving.guard import Answer
from ganger.serving.metrics import Metrics
from ganger.serving.records import Records
from ganger.serving.rounds import after
from ganger.serving.spark.book import TAG, Book, Shapes, SparkJob
from ganger.serving.spark.looking import Look
from ganger.serving.spark.pools import LAST, MIN_SHARES, Pool, choose
from ganger.simulator.observation import Observation

POOL = "spark.scheduler.pool"
_TAGS = "spark.job.tags"
_LOOK_S = 0.1
_IDLE_LOOK_S = 1.0
_SAVE_S = 10.0
_CLOSING_S = 2.0
"""How long Spark may take to tell of a job's last tasks."""


class Decider(Protocol):
    """What decides: a Guard."""

    def decide(self, observation: Observation) -> Answer:
        """Decide a round; it never raises for what a scheduler does."""


class SparkDriver:
    """Drives the marked jobs of one application."""

    def __init__(
        self,
        context: Any,
        guard: Decider,
        estimates: Estimates,
        shapes: Shapes,
        records: Records,
        metrics: Metrics | None = None,
        *,
        shadow: bool = False,
        executors: int | None = None,
        stall_s: float = 2.0,
        patience_s: float = 5.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start to drive; `close` ends it.

        Args:
            context: a SparkContext.
            guard: decides.
            estimates: of durations; learn from jobs that end.
            shapes: of jobs; likewise.
            records: keep rounds and jobs.
            metrics: count, if anybody is to see that from outside.
            shadow: decide and record, but let every job through at once, in no pool of ours.
            executors: task slots of the application; None: as Spark says.
            stall_s: the first job is let through when nothing has run for so long.
            patience_s: a gate that nobody has looked after for so long opens.
            say: gets lines for people.

        Raises:
            ConfigError: the application cannot be driven, and why.
        """
        if not shadow:
            check_pools(context)
        self.counts: Counter[str] = Counter()
        """What happened: jobs, rounds, fallbacks, ... by name."""
        self.guard = guard
        """What decides."""
        self._context = context
        self._estimates, self._shapes = estimates, shapes
        self._records, self._metrics = records, metrics
        self._shadow, self._say = shadow, say
        self._stall_s, self._patience_s = stall_s, patience_s
        self._book = Book(estimates, shapes)
        self._look = Look(context, self._book, executors=executors)
        self._lock = threading.Lock()  # of the book's jobs and what is told about them
        self._opened = threading.Condition(self._lock)
        self._numbers = itertools.count()
        self._mark = uuid.uuid4().hex[:8]
        self._closing: list[tuple[SparkJob, float, bool]] = []
        self._last: Observation | None = None
        self._ran_s = self._beat_s = self._saved_s = time.monotonic()
        self._complained = False
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="ganger-spark", daemon=True)
        self._thread.start()

    # --- for the threads that submit

    @contextmanager
    def job(self, name: str, kind: str = "", stages: tuple[int, ...] = ()) -> Iterator[None]:
        """Wait at the gate; what is submitted inside, by this thread, is one job."""
        job = self._arrive(name, kind, stages)
        ended_well = False
        try:
            pool = self._pass(job)
            with self._marked(job, pool):
                yield
            ended_well = True
        finally:
            with self._lock:
                self._closing.append((job, time.time(), ended_well))
                del self._book.jobs[job.name]
            self._wake.set()

    def close(self) -> None:
        """Stop driving: everybody is let through, and what was learned is saved."""
        self._stop.set()
        self._wake.set()
        self._thread.join(self._patience_s)
        with contextlib.suppress(Exception):  # the application may have stopped
            self._step()
        self._open_all("closed")
        with self._lock:
            self._finish(time.time() + _CLOSING_S, ())
        self._save()

    def _arrive(self, name: str, kind: str, stages: tuple[int, ...]) -> SparkJob:
        if not name or any(count < 1 for count in stages):
            raise ConfigError(
                f"a job needs a name, and its stages have tasks: got {name!r}, {stages}"
            )
        with self._lock:
            number = next(self._numbers)
            used = {*self._book.jobs, *(job.name for job, *_ in self._closing)}
            full = name if name not in used else f"{name}#{number}"
            tag = f"{TAG}{self._mark}-{number}"
            job = SparkJob(full, kind or name, time.time(), tag, tuple(stages))
            self._book.jobs[full] = job
            self.counts["jobs"] += 1
            if self._stop.is_set() or not self._thread.is_alive():
                self._open(job, Pool(LAST, 0))
            elif self._shadow:
                job.pool, job.active_s = Pool(LAST, 0), time.time()
        self._wake.set()
        return job

    def _pass(self, job: SparkJob) -> Pool:
        """Wait until the job is let through."""
        with self._opened:
            while job.pool is None:
                self._opened.wait(0.25)
                late = time.monotonic() - self._beat_s > self._patience_s
                if late or not self._thread.is_alive():
                    self._count("unattended")
                    self._open(job, Pool(LAST, 0))  # if nobody has meanwhile
            return job.pool

    @contextmanager
    def _marked(self, job: SparkJob, pool: Pool) -> Iterator[None]:
        context = self._context
        wanted = {} if self._shadow else {POOL: pool.name}
        tags = context.getLocalProperty(_TAGS)
        wanted[_TAGS] = f"{tags},{job.tag}" if tags else job.tag
        before = {name: context.getLocalProperty(name) for name in wanted}
        for name, value in wanted.items():
            context.setLocalProperty(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)

    # --- the thread that looks after the gate

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                busy = bool(self._book.jobs or self._closing)
            self._wake.wait(_LOOK_S if busy else _IDLE_LOOK_S)
            self._wake.clear()
            try:
                self._step()
            except Exception as error:  # the application must go on
                self.counts["errors"] += 1
                if not self._complained:
                    self._say(f"cannot look after jobs, so all are let through: {error!r}")
                self._complained = True
                self._open_all("errors_let_through")
            self._beat_s = time.monotonic()

    def _step(self) -> None:
        now_s = time.time()
        with self._lock:
            left = [job for job, *_ in self._closing]
            jobs = [*left, *(job for job in self._book.jobs.values() if job.pool is not None)]
            if not (jobs or self._book.jobs):
                self._ran_s = time.monotonic()
                return
        self._look(now_s, jobs)  # asks Spark, so nobody must wait for it
        settled = [job for job in left if self._look.settled(job)]
        with self._lock:
            self._finish(now_s, settled)
            waiting = bool(self._book.waiting) or self._shadow
            observation = self._book.observation(now_s) if waiting else None
        self._complained = False
        if observation is not None:
            self._gate(observation)
        self._let_stalled_through()
        if time.monotonic() - self._saved_s > _SAVE_S:
            self._save()

    def _gate(self, observation: Observation) -> None:
        """Ask whom the executors are to serve; let those through who are to get some."""
        alike = replace(observation, version=0, time_s=0.0)
        nothing = observation.on_offer < 1 or not any(job.schedulable for job in observation.jobs)
        if nothing or alike == self._last:
            return
        self._last = alike
        answer = self._ask(observation)
        if self._shadow:
            return
        for name in dict.fromkeys(decision.job for decision in answer.decisions):
            with self._lock:
                job = self._book.jobs.get(name)
                if job is None or job.pool is not None:
                    continue
                passed = [one for one in self._book.jobs.values() if one.pool is not None]
                now_s = time.time()
                among = [*passed, job]
                order = self._book.observation(now_s, among=among, ahead=True) if passed else None
            # The guard is not asked with the lock held: others may arrive and leave meanwhile.
            pool = Pool(LAST, 0)
            if order is not None and len(order.jobs) > 1 and order.on_offer > 0:
                pool = self._place(job, order)
            with self._lock:
                self._open(job, pool)

    def _place(self, job: SparkJob, order: Observation) -> Pool:
        """The pool that gives a job its place among those that were let through."""
        answer = self._ask(order)
        left = order
        served: dict[str, int] = {}  # in the order of decisions
        for decision in answer.decisions:
            served.setdefault(decision.job, len(served))
            left = after(left, decision)
        could_use_more = {
            one.id for one in left.jobs if any(stage.demand > 0 for stage in one.schedulable)
        }
        before: list[Pool] = []
        beside: list[Pool] = []
        behind: list[Pool] = []
        mine = served.get(job.name)
        with self._lock:
            pools = {one.name: one.pool for one in self._book.jobs.values()}
        for one in order.jobs:
            pool = pools.get(one.id)
            if pool is None:
                continue
            theirs = served.get(one.id)
            if mine is None:
                (before if theirs is not None else beside).append(pool)
            elif theirs is None:
                behind.append(pool)
            else:
                # Who could use more, and was not given it, shares with those after it.
                first = job.name if mine < theirs else one.id
                if first in could_use_more:
                    beside.append(pool)
                else:
                    (behind if mine < theirs else before).append(pool)
        return choose(before=before, beside=beside, behind=behind)

    def _ask(self, observation: Observation) -> Answer:
        answer = self.guard.decide(observation)
        outcome = "shadow" if self._shadow else "acted"
        self.counts["rounds"] += 1
        if answer.fallback is not None:
            self.counts[f"fallback {answer.fallback}"] += 1
        if self._metrics is not None:
            self._metrics.answered(observation, answer, outcome)
        self._records.round(time.time(), observation, answer, outcome)
        return answer

    def _let_stalled_through(self) -> None:
        """A scheduler may decline, but not for ever while nothing runs."""
        with self._lock:
            runs = self._book.others > 0 or any(
                job.pool is not None and not self._book.quiet(job, time.time())
                for job in self._book.jobs.values()
            )
            waiting = self._book.waiting
            now_s = time.monotonic()
            if runs or not waiting:
                self._ran_s = now_s
            elif now_s - self._ran_s > self._stall_s:
                self._count("stalled")
                self._last = None
                self._open(waiting[0], Pool(LAST, 0))

    # --- with the lock held

    def _open(self, job: SparkJob, pool: Pool) -> None:
        if job.pool is None:
            job.pool, job.active_s = pool, time.time()
            self.counts[f"rank {pool.rank}"] += 1
            self._opened.notify_all()

    def _finish(self, now_s: float, settled: Collection[SparkJob]) -> None:
        """Jobs that have left, and of which all is known by now."""
        kept = []
        for job, finish_s, ended_well in self._closing:
            if job not in settled and now_s < finish_s + _CLOSING_S:
                kept.append((job, finish_s, ended_well))
                continue
            if ended_well:
                self._book.learn(job)
            seen = self._book.seen(job, finish_s)
            if seen.stages:
                self._records.job(seen)
            if self._metrics is not None:
                self._metrics.jct.observe(max(finish_s - job.arrival_s, 0.0))
        self._closing = kept

    # --- anywhere

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1
        if self._metrics is not None:
            self._metrics.events.labels(kind).inc()

    def _open_all(self, why: str) -> None:
        with self._lock:
            for job in self._book.waiting:
                self._count(why)
                self._open(job, Pool(LAST, 0))

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        try:
            self._estimates.save()
            self._shapes.save()
        except OSError as error:
            self._say(f"what was learned cannot be saved: {error}")


def check_pools(context: Any) -> None:
    """Whether the application was started with our pools.

    Raises:
        ConfigError: it was not, or cannot tell.
    """
    how = "start it with the settings that ganger.spark.pools(PATH) returns"
    mode = context.getConf().get("spark.scheduler.mode", "FIFO")
    if mode.upper() != "FAIR":
        raise ConfigError(f"the application's spark.scheduler.mode is {mode}; {how}")
    for rank, share in enumerate(MIN_SHARES):
        pool = context._jsc.sc().getPoolForName(Pool(rank, 0).name)
        if not pool.isDefined() or pool.get().minShare() != share:
            raise ConfigError(f"the application has no pool {Pool(rank, 0).name!r} of ours; {how}")
