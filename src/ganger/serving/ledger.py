"""Who works where on a real cluster, kept by the simulator's rules (docs/simulator.md).

A driver tells what happened (a job came, a task ended, a worker was lost) and carries out what it
gets back: tasks to launch. Whenever executors have nothing to do by themselves, a round opens, and
whoever decides answers it, later. So a scheduler meets on a real cluster what it was trained on:
executors stay with their stage while that has tasks; they are decided about ahead of time when it
has none left to start; they stay with their job until they are given to another one.

As in a simulation with `reconsider`, an executor that ends a task after jobs arrived is offered
once more. What differs: executors change jobs at once; a stage is runnable as soon as some of its
tasks are; idle executors are offered again after every event, lest any is forgotten; and executors
and finished tasks can be lost. Plain Python, without the compiler: it runs inside the scheduler of
the engine that is driven.
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
    committed: int = 0
    executors: int = 0  # running its tasks, or just finished one
    chosen: bool = False  # in the round that is open
    total_s: float = 0.0  # that finished tasks took

    @property
    def exhausted(self) -> bool:
        return self.launched >= self.tasks

    @property
    def saturated(self) -> bool:
        return self.launched + self.committed >= self.tasks

    @property
    def schedulable(self) -> bool:
        return not self.saturated and not self.chosen and all(one.saturated for one in self.parents)


@dataclass(eq=False)
class _Job:
    id: str
    arrival_s: float
    rank: int
    stages: dict[str, _Stage] = field(default_factory=dict)  # in topological order
    executors: int = 0
    promised: int = 0  # by sources that are not its own
    news: bool = False  # tasks became ready, and its idle executors do not know

    @property
    def finished(self) -> bool:
        return all(stage.finished >= stage.tasks for stage in self.stages.values())


@dataclass(eq=False)
class _Executor:
    id: Hashable
    job: _Job | None = None
    stage: _Stage | None = None
    busy: bool = False
    asked: int = 0  # jobs that had arrived when it was last decided about


_Source = _Stage | _Job | None  # a stage; a job's pool; the common pool


@dataclass(eq=False)
class _Round:
    source: _Source
    job: _Job | None
    on_offer: int
    hand: list[_Executor]  # those of the source that are free now, longest idle first
    ahead: bool = False  # also about the others of the stage, which still run


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
        self._jobs: dict[str, _Job] = {}
        self._ranks = 0
        self._executors: dict[Hashable, _Executor] = {}
        self._pools: dict[_Job | None, list[_Executor]] = {None: []}
        self._promises: dict[_Source, deque[_Stage | None]] = {}
        self._rounds: deque[_Round] = deque()
        self._declined = False  # whoever idles was offered since the last event
        self._as_simulator = False  # to the letter, for comparison

    def knows(self, job: str) -> bool:
        """Whether a job is in the system."""
        return job in self._jobs

    # --- what happened

    def add_executors(self, ids: Iterable[Hashable]) -> None:
        """Workers joined."""
        for name in ids:
            executor = self._executors[name] = _Executor(name)
            self._pools[None].append(executor)
        self._news()

    def remove_executor(self, name: Hashable) -> None:
        """A worker has gone; a task that ran there is as if it had not been launched."""
        executor = self._executors.pop(name)
        stage = executor.stage
        if executor.busy and stage is not None:
            stage.launched -= 1
        self._leave_pool(executor)
        for one in self._rounds:
            if executor in one.hand:
                one.hand.remove(executor)
        if executor.job is not None:
            executor.job.executors -= 1
        if stage is not None:
            stage.executors -= 1
            self._forget_surplus(stage)
        if self._rounds:  # it may be about fewer now
            self._begin()
        self._news()

    def add_tasks(
        self, job: str, stage: str, parents: Sequence[str], count: int, now_s: float
    ) -> None:
        """Tasks of a stage were submitted; the first ones make the job arrive."""
        if job not in self._jobs:
            self._jobs[job] = _Job(job, now_s, self._ranks)
            self._pools[self._jobs[job]] = []
            self._ranks += 1
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
        self._news()

    def tasks_ready(self, job: str, stage: str, count: int = 1) -> None:
        """What these tasks wait for is done."""
        found = self._jobs[job].stages[stage]
        found.ready += count
        found.job.news = True

    def tasks_not_ready(self, job: str, stage: str, count: int = 1) -> None:
        """They wait again, and were not launched."""
        self._jobs[job].stages[stage].ready -= count

    def task_finished(self, name: Hashable, took_s: float) -> None:
        """An executor's task has ended, and what became ready by that was told."""
        executor = self._executors[name]
        stage = executor.stage
        assert stage is not None and executor.busy, f"{name} runs nothing"
        stage.finished += 1
        stage.total_s += took_s
        self._free(executor, stage)

    def task_failed(self, name: Hashable) -> None:
        """It ended without a result; whether it will be ready again is told apart."""
        executor = self._executors[name]
        stage = executor.stage
        assert stage is not None and executor.busy, f"{name} runs nothing"
        stage.launched -= 1
        self._free(executor, stage)

    def results_lost(self, job: str, stage: str, count: int = 1) -> None:
        """Finished tasks must run once more."""
        found = self._jobs[job].stages[stage]
        found.finished -= count
        found.launched -= count
        self._news()

    def remove_tasks(self, job: str, stage: str, count: int = 1) -> None:
        """Tasks that have not started are not wanted any more."""
        found = self._jobs[job].stages[stage]
        found.tasks -= count
        self._forget_surplus(found)
        self._end_job(found.job)
        self._news()

    def settle(self) -> None:
        """All that happened at this moment was told: open rounds for those who idle."""
        for job in list(self._jobs.values()):
            self._end_job(job)
        for job in list(self._jobs.values()):
            if job.news:
                job.news = False
                self._declined = False
                if self._pools[job]:
                    self._offer(job, job, list(self._pools[job]))
        if not self._as_simulator:
            self.offer_idle()
        self._skip()

    def rouse(self) -> None:
        """Nothing runs and nothing moves: offer everybody again, whatever was decided before."""
        self._promises.clear()
        for job in self._jobs.values():
            job.promised = 0
            for stage in job.stages.values():
                stage.committed = 0
            for executor in list(self._pools[job]):
                self._enter_pool(executor, None)
        self._declined = False
        self.offer_idle()

    def offer_idle(self) -> None:
        """Open a round for everybody in the common pool, unless they were asked about already."""
        if self._declined or not self._pools[None]:
            return
        self._declined = True
        self._offer(None, None, list(self._pools[None]))
        self._skip()

    # --- rounds

    def observation(self, now_s: float, estimates: dict[tuple[str, str], float]) -> Observation:
        """The cluster, with the round that waits for an answer; without one nobody is on offer.

        Args:
            now_s: on the clock of arrivals.
            estimates: seconds that a task takes, by job and stage.
        """
        current = self._rounds[0] if self._rounds else None
        source_job = None if current is None else current.job
        from_stage = current.source if current and isinstance(current.source, _Stage) else None
        return Observation(
            version=self.version,
            time_s=now_s,
            executors=len(self._executors),
            on_offer=0 if current is None else current.on_offer,
            source_job=None if source_job is None else source_job.id,
            idle=sum(map(len, self._pools.values())),
            jobs=tuple(
                JobObservation(
                    id=job.id,
                    arrival_s=job.arrival_s,
                    executors=job.executors,
                    supply=job.executors + job.promised,
                    stages=tuple(
                        StageObservation(
                            id=stage.id,
                            parents=tuple(
                                parent.id for parent in stage.parents if parent.tasks > 0
                            ),
                            tasks=stage.tasks,
                            launched=stage.launched,
                            finished=stage.finished,
                            committed=stage.committed,
                            moving=0,
                            executors=stage.executors,
                            estimated_task_s=estimates[job.id, stage.id],
                            schedulable=stage.schedulable,
                        )
                        for stage in job.stages.values()
                        if stage.tasks > 0
                    ),
                )
                for job in self._in_system()
            ),
            source_stage=None if from_stage is None or source_job is None else from_stage.id,
        )

    @property
    def waits(self) -> bool:
        """Whether a round waits for an answer."""
        return bool(self._rounds)

    def act(self, decisions: Sequence[Decision], version: int) -> bool:
        """Answer the round; False: the answer is to an older question, and nothing is done.

        The cluster goes on while somebody decides. A decision that was right when the question was
        asked and cannot be carried out any more is left out, and counted in `dropped`; where that
        leaves none, the question is asked again.
        """
        if not self._rounds or version != self.version:
            return False
        current = self._rounds[0]
        unknown = {(j, s): 0.0 for j, job in self._jobs.items() for s in job.stages}
        seen = self.observation(0.0, unknown)
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
        self._rounds.popleft()
        for decision, count in given:
            self._promise(current, self._jobs[decision.job].stages[decision.stage], count)
        self._close(current)
        if self._rounds:
            self._begin()
        self._skip()
        return True

    def serve_in_order(self) -> None:
        """Answer every round without a scheduler: jobs by arrival, all that they can use."""
        while self._rounds:
            estimates = {(j, s): 0.0 for j, job in self._jobs.items() for s in job.stages}
            seen = self.observation(0.0, estimates)
            first = next(
                Decision(job.id, stage.id, seen.executors)
                for job in seen.jobs
                for stage in job.schedulable
            )
            self.act([first], self.version)

    def timings(self) -> Iterator[tuple[str, str, int, float]]:
        """(job, stage, finished tasks, their seconds together) of what is in the system."""
        for job in self._jobs.values():
            for stage in job.stages.values():
                yield job.id, stage.id, stage.finished, stage.total_s

    # --- inside

    def _in_system(self) -> list[_Job]:
        return sorted(self._jobs.values(), key=lambda job: job.rank)

    def _news(self) -> None:
        self._declined = False

    def _free(self, executor: _Executor, stage: _Stage) -> None:
        """The executor has nothing to run: it stays, or keeps a promise, or is offered."""
        executor.busy = False
        self._news()
        if stage.ready > 0:
            if executor.asked < self._ranks:
                self._enqueue(_Round(stage, stage.job, 1, [executor]))
            else:
                self._launch(executor, stage)
            return
        for waiting in self._rounds:
            if waiting.source is stage and waiting.ahead:  # about all of them
                waiting.hand.append(executor)
                return
        job = stage.job
        if self._promises.get(stage):
            self._keep_promise(stage, executor)
        elif job.news:
            self._enter_pool(executor, job)  # which is offered when all has been told
        else:
            self._offer(stage, job, [executor])

    def _offer(self, source: _Source, job: _Job | None, hand: list[_Executor]) -> None:
        """Open a round, or let it wait for its turn."""
        ahead = isinstance(source, _Stage)
        for waiting in self._rounds:
            if waiting.source is source and waiting.ahead == ahead:
                waiting.hand = hand
                return
        self._enqueue(_Round(source, job, len(hand), hand, ahead))

    def _enqueue(self, new: _Round) -> None:
        self._rounds.append(new)
        if len(self._rounds) == 1:
            self._begin()

    def _begin(self) -> None:
        """The first round in the queue is the one to answer."""
        self.version += 1
        current = self._rounds[0]
        if not isinstance(current.source, _Stage):
            current.hand = list(self._pools[current.source])
        elif current.ahead:
            current.on_offer = current.source.executors
            return
        current.on_offer = len(current.hand)

    def _skip(self) -> None:
        """Close rounds that nobody needs to be asked about."""
        while self._rounds:
            current = self._rounds[0]
            schedulable = any(
                stage.schedulable for job in self._jobs.values() for stage in job.stages.values()
            )
            if current.on_offer > 0 and schedulable:
                return
            self._close(self._rounds.popleft())
            if self._rounds:
                self._begin()

    def _close(self, current: _Round) -> None:
        """Those left on offer are told to idle; whoever is free goes where it was promised to."""
        self._promise(current, None, current.on_offer)
        for job in self._jobs.values():
            for stage in job.stages.values():
                stage.chosen = False
        for executor in current.hand:
            self._keep_promise(current.source, executor)
        if isinstance(current.source, _Stage):
            self._forget_surplus(current.source)

    def _promise(self, current: _Round, stage: _Stage | None, count: int) -> None:
        if count == 0:
            return
        current.on_offer -= count
        self._promises.setdefault(current.source, deque()).extend([stage] * count)
        if stage is not None:
            stage.chosen = True
            stage.committed += count
            if stage.job is not _job_of(current.source):
                stage.job.promised += count

    def _take_promise(self, source: _Source, *, last: bool = False) -> _Stage | None:
        queue = self._promises[source]
        stage = queue.pop() if last else queue.popleft()
        if not queue:
            del self._promises[source]
        if stage is not None:
            stage.committed -= 1
            if stage.job is not _job_of(source):
                stage.job.promised -= 1
        return stage

    def _forget_surplus(self, source: _Stage) -> None:
        """Drop promises for executors that are not there any more."""
        while len(self._promises.get(source, ())) > source.executors:
            self._take_promise(source, last=True)

    def _keep_promise(self, source: _Source, executor: _Executor) -> None:
        """Send a free executor where it was promised to; if it was not, it idles."""
        stage = self._take_promise(source) if source in self._promises else None
        job = executor.job
        if stage is None and executor.stage is not None and executor.stage.ready > 0:
            self._launch(executor, executor.stage)  # it was offered once more, and stays
        elif stage is None:
            wanted = job is not None and any(not one.exhausted for one in job.stages.values())
            self._enter_pool(executor, job if wanted else None)
        elif stage.exhausted or stage.job.id not in self._jobs:
            self._use_elsewhere(executor)
        else:
            self._serve(executor, stage)

    def _use_elsewhere(self, executor: _Executor) -> None:
        """The promised stage needs nobody: own job's first ready stage, else any, else idle."""
        if executor.job is not None:
            for stage in executor.job.stages.values():
                if stage.ready > 0 and not stage.saturated:
                    self._serve(executor, stage)
                    return
        for job in self._in_system():
            for stage in job.stages.values():
                if stage.schedulable:
                    self._serve(executor, stage)
                    return
        self._enter_pool(executor, executor.job)

    def _serve(self, executor: _Executor, stage: _Stage) -> None:
        """Start a task of the stage, or wait with its job until there is one."""
        self._leave_pool(executor)
        if executor.job is not stage.job:
            self._leave_job(executor)
            executor.job = stage.job
            stage.job.executors += 1
        if stage.ready > 0:
            self._launch(executor, stage)
        else:
            self._enter_pool(executor, stage.job)

    def _launch(self, executor: _Executor, stage: _Stage) -> None:
        if executor.stage is not stage:
            self._leave_stage(executor)
            executor.stage = stage
            stage.executors += 1
        executor.busy = True
        executor.asked = self._ranks
        stage.ready -= 1
        stage.launched += 1
        self.launches.append((executor.id, stage.job.id, stage.id))

    def _enter_pool(self, executor: _Executor, job: _Job | None) -> None:
        self._leave_pool(executor)
        self._leave_stage(executor)
        if job is not executor.job:
            self._leave_job(executor)
        self._pools[job].append(executor)

    def _leave_pool(self, executor: _Executor) -> None:
        pool = self._pools[executor.job]
        if executor in pool:
            pool.remove(executor)

    def _leave_stage(self, executor: _Executor) -> None:
        if executor.stage is not None:
            executor.stage.executors -= 1
            executor.stage = None

    def _leave_job(self, executor: _Executor) -> None:
        self._leave_stage(executor)
        if executor.job is not None:
            executor.job.executors -= 1
            executor.job = None

    def _end_job(self, job: _Job) -> None:
        """A job whose tasks are all done leaves, and its executors belong to nobody."""
        if not job.finished:
            return
        for source in (job, *job.stages.values()):
            while source in self._promises:
                self._take_promise(source)
        open_before = self._rounds[0] if self._rounds else None
        freed = [one for round_ in self._rounds if round_.job is job for one in round_.hand]
        self._rounds = deque(one for one in self._rounds if one.job is not job)
        for executor in self._executors.values():
            if executor.job is job:
                self._leave_pool(executor)
                self._leave_job(executor)
                self._pools[None].append(executor)
        del self._pools[job], self._jobs[job.id]
        self.ended.append(job.id)
        if self._rounds and self._rounds[0] is not open_before:
            self._begin()
        if freed and self._as_simulator:
            self._rounds.append(_Round(None, None, len(freed), freed))
            self.version += 1


def _job_of(source: _Source) -> _Job | None:
    return source.job if isinstance(source, _Stage) else source


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
