"""Who works where on a real cluster, kept by the simulator's rules (docs/simulator.md).

A driver tells what happened (a job came, a task ended, a worker was lost) and carries out what it
gets back: tasks to launch. Whenever executors have nothing to do by themselves, a round opens, and
whoever decides answers it, later. The rules are those of a simulated cluster with `reconsider` and
`work_conserving`, where changing jobs takes no time: an executor stays with its stage while that
has tasks that can start, unless jobs arrived since it was last asked about; who has no work belongs
to nobody, and is offered when there is some.

Beyond that, executors and finished tasks can be lost, and a stage can start as soon as some of its
tasks can. Plain Python, without the compiler: it runs inside the scheduler of the engine that is
driven.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ganger.serving.rounds import after, amount, problem_with
from ganger.simulator.observation import Decision, JobObservation, Observation, StageObservation


@dataclass(eq=False)
class _Stage:
    id: str
    job: "_Job"
    parents: list["_Stage"] = field(default_factory=list)
    tasks: int = 0
    ready: int = 0  # tasks that could start now
    launched: int = 0
    finished: int = 0
    executors: int = 0  # running its tasks, or just finished one
    total_s: float = 0.0  # that finished tasks took

    @property
    def saturated(self) -> bool:
        return self.launched >= self.tasks

    @property
    def schedulable(self) -> bool:
        return self.ready > 0 and not self.saturated and all(one.saturated for one in self.parents)


@dataclass(eq=False)
class _Job:
    id: str
    arrival_s: float
    stages: dict[str, _Stage] = field(default_factory=dict)  # in topological order
    executors: int = 0

    @property
    def finished(self) -> bool:
        return all(stage.finished >= stage.tasks for stage in self.stages.values())


@dataclass(eq=False)
class _Executor:
    id: Hashable
    stage: _Stage | None = None
    busy: bool = False
    asked: int = 0  # jobs that had arrived when it was last decided about


@dataclass(eq=False)
class _Round:
    """About an executor that has just ended a task, or else about all that idle."""

    executor: _Executor | None = None


class Ledger:
    """The state of a cluster, and the round that waits for an answer."""

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever an answer that is still to come would be to an older question."""
        self.launches: list[tuple[Hashable, str, str]] = []
        """(executor, job, stage): to be carried out by the driver, which empties it."""
        self.ended: list[str] = []
        """Jobs that have ended; likewise."""
        self.dropped = 0
        """Decisions that could not be carried out any more."""
        self._jobs: dict[str, _Job] = {}  # by arrival
        self._arrived = 0
        self._executors: dict[Hashable, _Executor] = {}
        self._idle: list[_Executor] = []
        self._rounds: deque[_Round] = deque()
        self._news = False  # who idles may have work now

    def knows(self, job: str) -> bool:
        """Whether a job is in the system."""
        return job in self._jobs

    # --- what happened

    def add_executors(self, ids: Iterable[Hashable]) -> None:
        """Workers joined."""
        for name in ids:
            executor = self._executors[name] = _Executor(name)
            self._idle.append(executor)
        self._news = True

    def remove_executor(self, name: Hashable) -> None:
        """A worker has gone; a task that ran there is as if it had not been launched."""
        executor = self._executors.pop(name)
        if executor.busy and executor.stage is not None:
            executor.stage.launched -= 1
        self._leave(executor)
        if executor in self._idle:
            self._idle.remove(executor)
        self._rounds = deque(one for one in self._rounds if one.executor is not executor)
        self.version += 1  # there are fewer of them, whatever was asked

    def add_tasks(
        self, job: str, stage: str, parents: Sequence[str], count: int, now_s: float
    ) -> None:
        """Tasks of a stage were submitted; the first ones make the job arrive."""
        if job not in self._jobs:
            self._jobs[job] = _Job(job, now_s)
            self._arrived += 1
            self._news = True
        known = self._jobs[job]
        found = known.stages.get(stage) or known.stages.setdefault(stage, _Stage(stage, known))
        found.tasks += count
        for name in parents:
            parent = known.stages.get(name)
            if parent is None or parent in found.parents:
                continue
            if not _comes_before(found, parent):  # stages are groups of tasks: there may be rings
                found.parents.append(parent)
        known.stages = {one.id: one for one in _in_order(known.stages.values())}

    def tasks_ready(self, job: str, stage: str, count: int = 1) -> None:
        """What these tasks wait for is done."""
        self._jobs[job].stages[stage].ready += count
        self._news = True

    def tasks_not_ready(self, job: str, stage: str, count: int = 1) -> None:
        """They wait again, and were not launched."""
        self._jobs[job].stages[stage].ready -= count

    def task_finished(self, name: Hashable, took_s: float) -> None:
        """An executor's task has ended, and what became ready by that was told."""
        stage = self._stage_of(name)
        stage.finished += 1
        stage.total_s += took_s
        self._free(self._executors[name], stage)

    def task_failed(self, name: Hashable) -> None:
        """It ended without a result; whether it will be ready again is told apart."""
        stage = self._stage_of(name)
        stage.launched -= 1
        self._free(self._executors[name], stage)

    def results_lost(self, job: str, stage: str, count: int = 1) -> None:
        """Finished tasks must run once more."""
        found = self._jobs[job].stages[stage]
        found.finished -= count
        found.launched -= count

    def remove_tasks(self, job: str, stage: str, count: int = 1) -> None:
        """Tasks that have not started are not wanted any more."""
        self._jobs[job].stages[stage].tasks -= count
        self._news = True

    def settle(self) -> None:
        """All that happened at this moment was told: open the rounds that it calls for."""
        for job in [job for job in self._jobs.values() if job.finished]:
            self._end_job(job)
        if self._news and self._idle:
            self.offer_idle()
        self._news = False
        self._skip()

    def offer_idle(self) -> None:
        """Ask about all that idle."""
        if not any(one.executor is None for one in self._rounds):
            self._enqueue(_Round())
        self._skip()

    # --- rounds

    @property
    def waits(self) -> bool:
        """Whether a round waits for an answer."""
        return bool(self._rounds)

    def observation(self, now_s: float, estimates: dict[tuple[str, str], float]) -> Observation:
        """The cluster, with the round that waits for an answer; without one nobody is on offer.

        Args:
            now_s: on the clock of arrivals.
            estimates: seconds that a task takes, by job and stage; 0 where it says nothing.
        """
        executor = self._rounds[0].executor if self._rounds else None
        stage = None if executor is None else executor.stage
        return Observation(
            version=self.version,
            time_s=now_s,
            executors=len(self._executors),
            on_offer=len(self._hand()),
            source_job=None if stage is None else stage.job.id,
            idle=len(self._idle),
            jobs=tuple(_observed(job, estimates) for job in self._jobs.values()),
            source_stage=None if stage is None else stage.id,
            work_conserving=True,
        )

    def act(self, decisions: Sequence[Decision], version: int) -> bool:
        """Answer the round; False: the answer is to an older question, and nothing is done.

        The cluster goes on while somebody decides. A decision that was right when the question was
        asked and cannot be carried out any more is left out, and counted in `dropped`; where that
        leaves none, the question is asked again.
        """
        if not self._rounds or version != self.version:
            return False
        seen = self.observation(0.0, {})
        given: list[tuple[Decision, int]] = []
        for decision in decisions:
            if seen.on_offer == 0 or problem_with(seen, decision) is not None:
                self.dropped += 1
                continue
            given.append((decision, amount(seen, decision)))
            seen = after(seen, decision)
        self.version += 1
        if decisions and not given:
            return False
        hand = deque(self._hand())
        self._rounds.popleft()
        for decision, count in given:
            stage = self._jobs[decision.job].stages[decision.stage]
            for _ in range(min(count, stage.ready)):
                self._launch(hand.popleft(), stage)
        for executor in hand:
            self._leave_idle(executor)
        self._skip()
        return True

    def serve_in_order(self) -> None:
        """Answer every round without a scheduler: jobs by arrival, all that they can use."""
        while self._rounds:
            seen = self.observation(0.0, {})
            first = next(
                Decision(job.id, stage.id, seen.executors)
                for job in seen.jobs
                for stage in job.schedulable
            )
            self.act([first], self.version)
            if self._idle:
                self.offer_idle()

    def timings(self) -> Iterator[tuple[str, str, int, float]]:
        """(job, stage, finished tasks, their seconds together) of what is in the system."""
        for job in self._jobs.values():
            for stage in job.stages.values():
                yield job.id, stage.id, stage.finished, stage.total_s

    # --- inside

    def _stage_of(self, name: Hashable) -> _Stage:
        executor = self._executors[name]
        assert executor.stage is not None and executor.busy, f"{name} runs nothing"
        return executor.stage

    def _hand(self) -> list[_Executor]:
        """Who is on offer, longest idle first."""
        if not self._rounds:
            return []
        executor = self._rounds[0].executor
        return list(self._idle) if executor is None else [executor]

    def _free(self, executor: _Executor, stage: _Stage) -> None:
        """The executor stays with its stage, or is asked about."""
        executor.busy = False
        if stage.ready > 0 and executor.asked == self._arrived:
            self._launch(executor, stage)
        else:
            self._enqueue(_Round(executor))

    def _enqueue(self, new: _Round) -> None:
        self._rounds.append(new)
        self.version += len(self._rounds) == 1

    def _skip(self) -> None:
        """Close rounds that nobody needs to be asked about."""
        schedulable = any(
            stage.schedulable for job in self._jobs.values() for stage in job.stages.values()
        )
        while self._rounds and not (schedulable and self._hand()):
            executor = self._rounds.popleft().executor
            self.version += 1
            if executor is not None:
                self._leave_idle(executor)

    def _launch(self, executor: _Executor, stage: _Stage) -> None:
        if executor in self._idle:
            self._idle.remove(executor)
        if executor.stage is not stage:
            self._leave(executor)
            executor.stage = stage
            stage.executors += 1
            stage.job.executors += 1
        executor.busy = True
        executor.asked = self._arrived
        stage.ready -= 1
        stage.launched += 1
        self.launches.append((executor.id, stage.job.id, stage.id))

    def _leave_idle(self, executor: _Executor) -> None:
        """Nobody gave it anything: it goes on with its stage if it can, or else idles."""
        if executor.stage is not None and executor.stage.ready > 0:
            self._launch(executor, executor.stage)
        elif executor not in self._idle:
            self._leave(executor)
            self._idle.append(executor)

    def _leave(self, executor: _Executor) -> None:
        if executor.stage is not None:
            executor.stage.executors -= 1
            executor.stage.job.executors -= 1
            executor.stage = None

    def _end_job(self, job: _Job) -> None:
        """All its tasks are done: it leaves, and whoever was still with it belongs to nobody."""
        for executor in self._executors.values():
            if executor.stage is not None and executor.stage.job is job:
                self._leave(executor)
        del self._jobs[job.id]
        self.ended.append(job.id)


def _observed(job: _Job, estimates: dict[tuple[str, str], float]) -> JobObservation:
    return JobObservation(
        id=job.id,
        arrival_s=job.arrival_s,
        executors=job.executors,
        supply=job.executors,
        stages=tuple(
            StageObservation(
                id=stage.id,
                parents=tuple(one.id for one in stage.parents if one.tasks > 0),
                tasks=stage.tasks,
                launched=stage.launched,
                finished=stage.finished,
                committed=0,
                moving=0,
                executors=stage.executors,
                estimated_task_s=estimates.get((job.id, stage.id), 0.0),
                schedulable=stage.schedulable,
            )
            for stage in job.stages.values()
            if stage.tasks > 0
        ),
    )


def _comes_before(stage: _Stage, other: _Stage) -> bool:
    """Whether `other` waits for `stage`, through whatever lies between."""
    return other is stage or any(_comes_before(stage, parent) for parent in other.parents)


def _in_order(stages: Iterable[_Stage]) -> list[_Stage]:
    """Parents first, else as they came."""
    ordered: dict[_Stage, None] = {}

    def put(stage: _Stage) -> None:
        if stage not in ordered:
            for parent in stage.parents:
                put(parent)
            ordered[stage] = None

    for stage in stages:
        put(stage)
    return list(ordered)
