"""The part that lives in Dask's scheduler: it gates the tasks of marked jobs.

A gated task asks for a resource that no worker has, so Dask keeps it in its state `no-worker` until
the ledger launches it on one worker. All of Dask's own machinery stays as it is; tasks that are
not marked are not touched. Whatever the agent does, or does not do, the cluster goes on: rounds
that nobody answers in time are served in order of arrival.

It uses internals of `distributed`: task states, restrictions and `transitions`. KNOWN lists the
versions it was tested with; `check_scheduler` looks at them before anything is gated.
"""

import asyncio
import hmac
import inspect
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from distributed.diagnostics.plugin import SchedulerPlugin

from ganger.errors import ConfigError
from ganger.serving.dask.messages import Act, Seen, StageTimes
from ganger.serving.ledger import Ledger
from ganger.serving.records import SeenJob, SeenStage
from ganger.serving.shadow import Shadow
from ganger.simulator.observation import Observation

KNOWN = ("2026.8",)
"""Versions of distributed, by their first two numbers, that all tests have passed with."""
TOKEN = "GANGER_TOKEN"  # of the environment
DEADLINE = "GANGER_DEADLINE_S"
SHADOW = "GANGER_SHADOW"
_GATE = {"ganger-gate": 1}
_DEADLINE_S = 0.5
_UNATTENDED_S = 3.0  # without a question from an agent: there is none
_STALLED_S = 2.0
_KEPT = 10_000  # jobs that have ended and nobody asked about

logger = logging.getLogger("ganger.dask")


@dataclass(eq=False)
class _Task:
    key: Hashable
    job: str
    stage: str
    state: str = "waiting"  # ready, running, done, failed
    slot: tuple[str, int] | None = None
    launched_s: float = 0.0


@dataclass(eq=False)
class _Seen:
    """What is remembered of a job for its record."""

    arrival_s: float
    kind: str
    stages: dict[str, list[float]] = field(default_factory=dict)
    parents: dict[str, set[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


class Gate(SchedulerPlugin):
    """Holds back the tasks of marked jobs and launches them as the ledger says."""

    name = "ganger"

    def __init__(
        self, token: str, deadline_s: float = _DEADLINE_S, *, shadow: bool = False
    ) -> None:
        if not token:
            raise ConfigError(f"set {TOKEN} for the scheduler and the agent to the same secret")
        self._token = token.encode()
        self._deadline_s = deadline_s
        self._ledger = Ledger()
        self._shadow = Shadow() if shadow else None
        self._would: Observation | None = None  # what there last was to decide in the shadow
        self._tasks: dict[Hashable, _Task] = {}
        self._ready: dict[tuple[str, str], dict[Hashable, None]] = {}
        self._jobs: dict[str, _Seen] = {}
        self._ended: deque[SeenJob] = deque(maxlen=_KEPT)
        self._ended_before = 0
        self._runs: Counter[str] = Counter()
        self._slots: dict[str, list[tuple[str, int]]] = {}
        self._told: list[tuple[str, Any]] = []
        self._due = False
        self._asked_s = -1e9
        self._idle_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.counts: Counter[str] = Counter()

    async def start(self, scheduler: Any) -> None:
        """Take part in a scheduler."""
        check_scheduler(scheduler)
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        scheduler.handlers["ganger_observe"] = self.observe
        scheduler.handlers["ganger_act"] = self.act
        for address, worker in scheduler.workers.items():
            self._tell("join", (address, worker.nthreads))
        self._watch = asyncio.create_task(self._look_after())

    async def close(self) -> None:
        """The scheduler ends."""
        self._watch.cancel()

    # --- what Dask tells

    def update_graph(self, scheduler: Any, *, tasks: Iterable[Hashable], **_: Any) -> None:
        """A graph was submitted: gate what is marked."""
        groups: dict[tuple[str, str], int] = {}
        parents: dict[tuple[str, str], set[str]] = {}
        for key in tasks:
            task = scheduler.tasks[key]
            job = self._job_of(task)
            if job is None or key in self._tasks:
                continue
            stage = task.group.name
            self._tasks[key] = _Task(key, job, stage)
            self._gate(task)
            groups[job, stage] = groups.get((job, stage), 0) + 1
            above = parents.setdefault((job, stage), set())
            for dependency in task.dependencies:
                if self._is_of(dependency, job) and dependency.group.name != stage:
                    above.add(dependency.group.name)
            seen = self._jobs.get(job)
            if seen is None:
                kind = str((task.annotations or {}).get("ganger_kind", ""))
                seen = self._jobs[job] = _Seen(time.time(), kind)
            prefix = task.prefix.name
            seen.names[stage] = f"{seen.kind}/{prefix}" if seen.kind else prefix
            seen.parents.setdefault(stage, set()).update(above)
        for job, stage in _parents_first(parents):
            names = tuple(sorted(parents[job, stage]))
            self._tell("add", (job, stage, names, groups[job, stage]))

    def transition(self, key: Hashable, start: str, finish: str, *_: Any, **more: Any) -> None:
        """A task changed its state."""
        task = self._tasks.get(key)
        if task is None:
            return
        where = (task.job, task.stage)
        if start == "processing" and task.state == "running":
            slot, task.slot = task.slot, None
            if finish == "memory":
                task.state = "done"
                held_s = time.monotonic() - task.launched_s if slot else 0.0
                self._tell("finished", (slot, where, max(held_s, _seconds(more))))
            else:
                task.state = "waiting"
                self._tell("failed", (slot, where))
                self.counts["tasks_interrupted"] += finish != "erred"
        elif start == "no-worker" and task.state == "ready":
            task.state = "waiting"
            self._ready[where].pop(key, None)
            self._tell("unready", where)
        if finish == "waiting":
            if task.state == "done":  # its result was lost with a worker
                self.counts["results_lost"] += 1
                self._tell("lost", where)
            elif task.state == "failed":  # retried by hand
                self._tell("add", (*where, (), 1))
            task.state = "waiting"
            self._gate(self._scheduler.tasks[key])
        elif finish == "processing" and self._shadow is not None:
            task.state = "running"
            self._tell("started", where)
        elif finish == "no-worker" and self._shadow is None:
            task.state = "ready"
            self._ready.setdefault(where, {})[key] = None
            self._tell("ready", where)
        elif finish in ("erred", "forgotten"):
            if task.state == "waiting":
                self._tell("remove", where)
                self.counts["tasks_failed"] += finish == "erred"
                task.state = "failed"
            if finish == "forgotten":
                del self._tasks[key]

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker joined."""
        self._tell("join", (worker, scheduler.workers[worker].nthreads))

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """A worker has gone."""
        self.counts["workers_lost"] += 1
        self._tell("leave", worker)

    def restart(self, scheduler: Any) -> None:
        """All tasks are forgotten, and all workers start anew."""
        self.counts["restarts"] += 1

    # --- what the agent asks

    async def observe(
        self, token: str = "", since: int = -1, ended: int = 0, timeout: float = 5.0
    ) -> bytes:
        """The next round that waits for an answer, once its version is above `since`."""
        self._check(token)
        self._confirm(ended)
        end = self._loop.time() + min(timeout, 60.0)
        while True:
            self._asked_s = time.monotonic()
            if self._version() > since or self._ended:
                break
            left = end - self._loop.time()
            if left <= 0:
                break
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, 1.0))
            except TimeoutError:
                continue
        return msgspec.msgpack.encode(self._seen())

    async def act(self, token: str = "", answer: bytes = b"") -> bool:
        """Do what was decided about a round; False: it is over, and nothing was done."""
        self._check(token)
        given = msgspec.msgpack.decode(answer, type=Act)
        self._digest()
        done = self._ledger.act(given.decisions, given.version)
        self.counts["acted" if done else "stale"] += 1
        self.counts["dropped"] = self._ledger.dropped
        self._carry_out()
        return done

    # --- inside

    def _check(self, token: Any) -> None:
        if not hmac.compare_digest(str(token).encode(), self._token):
            self.counts["refused"] += 1
            raise PermissionError("ganger: the token is wrong")

    def _job_of(self, task: Any) -> str | None:
        """The job that a task is marked with, if it is one that can be held back."""
        job = (task.annotations or {}).get("job")
        if job is None or task.run_spec is None or task.actor:
            return None
        if task.state not in ("released", "waiting"):
            return None
        restricted = task.worker_restrictions or task.host_restrictions
        if restricted or (task.resource_restrictions or _GATE) != _GATE:
            self.counts["tasks_restricted"] += 1  # Dask alone knows where these may run
            return None
        return str(job)

    def _is_of(self, task: Any, job: str) -> bool:
        return str((task.annotations or {}).get("job")) == job

    def _version(self) -> int:
        """Of the question that waits for an answer; -1: none does."""
        if self._shadow is not None:
            return -1 if self._would is None else self._would.version
        return self._ledger.version if self._ledger.waits else -1

    def _gate(self, task: Any) -> None:
        if self._shadow is not None:
            return
        task.resource_restrictions = dict(_GATE)
        task.worker_restrictions = None

    def _tell(self, what: str, about: Any) -> None:
        """Remember for the ledger; Dask is in the middle of something."""
        self._told.append((what, about))
        if not self._due:
            self._due = True
            self._loop.call_soon(self._digest)

    def _digest(self) -> None:
        self._due = False
        told, self._told = self._told, []
        if self._shadow is not None:
            self._watch_only(self._shadow, told)
            return
        ledger = self._ledger
        now_s = time.time()
        # A ledger hears what became ready by a task's end before the end itself.
        for what, about in told:
            if what == "add":
                job, stage, parents, count = about
                ledger.add_tasks(job, stage, parents, count, now_s)
            elif what == "ready":
                ledger.tasks_ready(*about)
            elif what == "unready":
                ledger.tasks_not_ready(*about)
            elif what == "lost":
                self._lost(about[0], about[1], now_s)
        for what, about in told:
            if what == "finished":
                slot, (job, stage), took_s = about
                self._jobs[job].stages.setdefault(stage, []).append(took_s)
                ledger.task_finished(slot, took_s)
            elif what == "failed":
                ledger.task_failed(about[0])
        for what, about in told:
            if what == "remove" and ledger.knows(about[0]):
                ledger.remove_tasks(*about)
            elif what == "leave":
                for slot in self._slots.pop(about, ()):
                    ledger.remove_executor(slot)
            elif what == "join":
                address, threads = about
                if address not in self._slots:
                    self._slots[address] = [(address, number) for number in range(threads)]
                    ledger.add_executors(self._slots[address])
        ledger.settle()
        self._carry_out()

    def _watch_only(self, shadow: Shadow, told: list[tuple[str, Any]]) -> None:
        """In the shadow: what there was to decide before Dask gave the next tasks away."""
        now_s = time.time()
        before = shadow.version
        starts = []
        for what, about in told:
            if what == "add":
                job, stage, parents, count = about
                shadow.add_tasks(job, stage, parents, count, now_s)
            elif what == "started":
                starts.append(about)
            elif what == "finished":
                _, (job, stage), took_s = about
                if starts and about[1] in starts:  # within one moment: it started here, too
                    starts.remove(about[1])
                    shadow.task_started(job, stage)
                self._jobs[job].stages.setdefault(stage, []).append(took_s)
                shadow.task_finished(job, stage, took_s)
            elif what == "failed":
                shadow.task_failed(*about[1])
            elif what == "lost":
                shadow.result_lost(*about)
            elif what == "remove":
                shadow.remove_tasks(*about)
            elif what == "join":
                self._slots[about[0]] = [(about[0], n) for n in range(about[1])]
            elif what == "leave":
                self._slots.pop(about, None)
        shadow.executors = sum(map(len, self._slots.values()))
        if shadow.executors and (would := shadow.observation(now_s)) is not None:
            self._would = would
        for where in starts:
            shadow.task_started(*where)
        for job in shadow.ended:
            self._close_job(job)
        shadow.ended.clear()
        if shadow.version > before:
            self._changed.set()

    def _lost(self, job: str, stage: str, now_s: float) -> None:
        """A finished task must run again; its job may have ended since."""
        if self._ledger.knows(job):
            self._ledger.results_lost(job, stage)
        else:
            self._jobs.setdefault(job, _Seen(now_s, ""))
            self._ledger.add_tasks(job, stage, (), 1, now_s)

    def _carry_out(self) -> None:
        """Launch what the ledger says, then wait for an answer, if one is needed."""
        launched = True
        while launched:
            launched = bool(self._ledger.launches)
            launches = list(self._ledger.launches)
            self._ledger.launches.clear()
            for slot, job, stage in launches:
                self._launch(slot, job, stage)
        for job in self._ledger.ended:
            self._close_job(job)
        self._ledger.ended.clear()
        if not self._ledger.waits:
            self._stop_timer()
        elif time.monotonic() - self._asked_s > _UNATTENDED_S:
            self.counts["unattended"] += 1
            self._serve_in_order()
        else:
            self._changed.set()
            if self._timer is None:
                version = self._ledger.version
                self._timer = self._loop.call_later(self._deadline_s, self._late, version)

    def _launch(self, slot: Any, job: str, stage: str) -> None:
        address = slot[0]
        ready = self._ready.get((job, stage), {})
        worker = self._scheduler.workers.get(address)
        if worker is None:  # its slots leave the ledger with the next news
            self._ledger.tasks_ready(job, stage)
            return
        if not ready:
            self.counts["out_of_step"] += 1
            self._ledger.remove_executor(slot)
            self._ledger.add_executors([slot])
            return
        key = next(iter(ready))
        del ready[key]
        task, state = self._tasks[key], self._scheduler.tasks[key]
        task.state, task.slot, task.launched_s = "running", slot, time.monotonic()
        state.resource_restrictions = None
        state.worker_restrictions = {address}
        self._scheduler.transitions({key: "processing"}, f"ganger-{self.counts['launched']}")
        self.counts["launched"] += 1
        if state.state != "processing":  # the worker is paused
            self._gate(state)
            task.state, task.slot = "ready", None
            ready[key] = None
            self._ledger.tasks_ready(job, stage)
            self._slots[address].remove(slot)
            self._ledger.remove_executor(slot)

    def _close_job(self, job: str) -> None:
        seen = self._jobs.pop(job, None)
        if seen is None or not seen.stages:
            return
        stages = tuple(
            SeenStage(
                stage,
                tuple(sorted(one for one in seen.parents.get(stage, ()) if one in seen.stages)),
                tuple(durations),
                seen.names.get(stage),
            )
            for stage, durations in seen.stages.items()
        )
        if len(self._ended) == self._ended.maxlen:
            self._ended_before += 1
        if len(self._runs) > _KEPT:
            self._runs.clear()
        self._runs[job] += 1
        name = job if self._runs[job] == 1 else f"{job}#{self._runs[job]}"
        self._ended.append(SeenJob(name, seen.arrival_s, time.time(), stages))
        self.counts["jobs"] += 1
        self._changed.set()

    def _late(self, version: int) -> None:
        self._timer = None
        self._digest()
        if self._ledger.waits and self._ledger.version == version:
            self.counts["late"] += 1
            self._serve_in_order()
        elif self._ledger.waits:
            self._carry_out()

    def _serve_in_order(self) -> None:
        self._ledger.serve_in_order()
        self._carry_out()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _confirm(self, ended: int) -> None:
        while self._ended and self._ended_before < ended:
            self._ended.popleft()
            self._ended_before += 1

    def _seen(self) -> Seen:
        ledger, shadow = self._ledger, self._shadow
        times = tuple(
            StageTimes(job, stage, self._name(job, stage), finished, total_s)
            for job, stage, finished, total_s in (shadow or ledger).timings()
        )
        observation = self._would
        if ledger.waits:
            observation = ledger.observation(time.time(), {})
        return Seen(
            version=self._version(),
            shadow=shadow is not None,
            observation=observation,
            times=times,
            ended=tuple(self._ended),
            ended_before=self._ended_before,
            counts=dict(self.counts),
        )

    def _name(self, job: str, stage: str) -> str:
        seen = self._jobs.get(job)
        return stage if seen is None else seen.names.get(stage, stage)

    async def _look_after(self) -> None:
        """Notice workers that pause and go on, and never let a cluster stand still."""
        while True:
            await asyncio.sleep(_STALLED_S / 2)
            try:
                self._reconcile()
            except Exception:  # it must not end the plugin
                logger.exception("looking after the cluster failed")

    def _reconcile(self) -> None:
        for worker in list(self._scheduler.running):
            have = self._slots.get(worker.address)
            if have is not None and len(have) < worker.nthreads:  # it was paused
                missing = set(range(worker.nthreads)) - {number for _, number in have}
                slots = [(worker.address, number) for number in sorted(missing)]
                have.extend(slots)
                self._ledger.add_executors(slots)
                self._ledger.settle()
                self._carry_out()
        running = any(task.state == "running" for task in self._tasks.values())
        if running or not any(self._ready.values()) or not self._scheduler.running:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > _STALLED_S:
            self._idle_since = None
            self.counts["stalled"] += 1
            self._ledger.offer_idle()
            self._serve_in_order()


def check_scheduler(scheduler: Any) -> None:
    """Look at what is used of Dask's internals.

    Raises:
        ConfigError: this version of distributed is not one that can be driven, and why.
    """
    from importlib.metadata import version

    from distributed.scheduler import TaskState

    number = version("distributed")
    where = f"distributed {number}"
    for name in ("handlers", "tasks", "workers", "running", "transitions", "unrunnable"):
        if not hasattr(scheduler, name):
            raise ConfigError(f"{where}: its scheduler has no {name!r}; tested with {KNOWN}")
    slots = set(dir(TaskState))
    wanted = {
        "annotations", "group", "prefix", "dependencies", "state", "run_spec", "actor",
        "resource_restrictions", "worker_restrictions", "host_restrictions",
    }  # fmt: skip
    if missing := sorted(wanted - slots):
        raise ConfigError(f"{where}: its tasks have no {', '.join(missing)}; tested with {KNOWN}")
    if list(inspect.signature(scheduler.transitions).parameters)[:2] != [
        "recommendations", "stimulus_id",
    ]:  # fmt: skip
        raise ConfigError(f"{where}: its transitions() is another one; tested with {KNOWN}")
    if ".".join(number.split(".")[:2]) not in KNOWN:
        logger.warning("%s is not one of the versions tested: %s", where, ", ".join(KNOWN))


def _parents_first(parents: dict[tuple[str, str], set[str]]) -> list[tuple[str, str]]:
    """Stages, by (job, name), in an order in which none waits for a later one; rings are cut."""
    ordered: dict[tuple[str, str], None] = {}
    begun = set()
    for first in parents:
        todo = [first]
        while todo:
            where = todo[-1]
            begun.add(where)
            above = [(where[0], name) for name in sorted(parents[where])]
            if waits := [one for one in above if one in parents and one not in begun]:
                todo.extend(waits)
            else:
                ordered[todo.pop()] = None
    return list(ordered)


def _seconds(more: dict[str, Any]) -> float:
    """How long a task computed, as its worker says."""
    return sum(
        float(one["stop"]) - float(one["start"])
        for one in more.get("startstops") or ()
        if one.get("action") == "compute"
    )


async def setup(scheduler: Any) -> None:
    """What the preload does: settings come from the environment of the scheduler."""
    gate = Gate(
        os.environ.get(TOKEN, ""),
        float(os.environ.get(DEADLINE, _DEADLINE_S)),
        shadow=os.environ.get(SHADOW, "") not in ("", "0"),
    )
    await gate.start(scheduler)
    scheduler.add_plugin(gate, name=gate.name)
    logger.info("ganger gates jobs that are marked; tested with distributed %s", KNOWN)
