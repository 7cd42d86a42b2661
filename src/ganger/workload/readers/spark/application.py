"""What a Spark application did, gathered from its events one by one.

A *unit* is what becomes a job of the workload: one Spark job, or all Spark jobs of one SQL
execution. Of a task only its times and where it ran are kept, so memory grows with the durations
that come out, not with the log.
"""

from array import array
from dataclasses import dataclass

from ganger.workload.readers.findings import Findings
from ganger.workload.readers.spark.edges import link
from ganger.workload.readers.spark.events import (
    ApplicationEnd,
    ApplicationStart,
    Environment,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    JobEnd,
    JobStart,
    LogStart,
    ResourceProfile,
    SqlEnd,
    SqlStart,
    StageCompleted,
    StageInfo,
    StageSubmitted,
    TaskEnd,
    TaskStart,
)
from ganger.workload.readers.spark.executors import Executor
from ganger.workload.readers.spark.unit import Stage, Unit

_REASONS = frozenset(
    (
        "Resubmitted",
        "TaskResultLost",
        "TaskKilled",
        "ExceptionFailure",
        "ExecutorLostFailure",
        "FetchFailed",
        "TaskCommitDenied",
        "UnknownReason",
    )
)


@dataclass(slots=True)
class Job:
    """A Spark job: the unit it belongs to, and whether it has ended."""

    unit: int
    ended: bool = False


class Tasks:
    """Task attempts that took up a slot, as columns."""

    def __init__(self) -> None:
        self.unit = array("q")
        self.stage = array("q")
        self.executor = array("q")
        self.launch_ms = array("q")
        self.finish_ms = array("q")
        self.kept = array("b")
        """1 where the duration counts; other attempts only say what a slot did before."""

    def __len__(self) -> int:
        return len(self.unit)


class Application:
    """Everything kept of one application; `handle` takes its events in the log's order."""

    def __init__(self, findings: Findings, per_execution: bool) -> None:
        self.findings = findings
        self.per_execution = per_execution
        self.version = ""
        self.id: str | None = None
        self.attempt: str | None = None
        self.user: str | None = None
        self.started = False
        self.ended = False
        self.ended_ms: int | None = None
        self.events = 0
        self.task_cpus = 1
        self.profiles: dict[int, ResourceProfile] = {}
        self.executors: dict[str, int] = {}
        """Executor ID -> index of its latest life in `lives`."""
        self.lives: list[Executor] = []
        self.units: list[Unit] = []
        self.jobs: dict[int, Job] = {}
        self.tasks = Tasks()
        self._executions: dict[int, int] = {}
        self._listing: dict[int, list[int]] = {}
        self._attempts: dict[tuple[int, int], tuple[int, Stage]] = {}
        self._running: dict[int, str] = {}

    def handle(self, event: Event, where: str) -> None:
        """Take in one event; `where` is its file:line."""
        match event:
            case TaskEnd():
                self._task_end(event, where)
            case TaskStart(info=info):
                self._running[info.id] = where
            case StageSubmitted(info=info):
                self._stage_submitted(info, where)
            case StageCompleted(info=info):
                self._stage_completed(info, where)
            case JobStart():
                self._job_start(event, where)
            case JobEnd():
                self._job_end(event, where)
            case SqlStart(id=execution, time=time):
                if self.per_execution:
                    unit = self.units[self._execution(execution, where)]
                    if unit.submitted_ms is None:
                        unit.submitted_ms = time
            case SqlEnd(id=execution, time=time):
                if execution in self._executions:
                    unit = self.units[self._executions[execution]]
                    unit.finished_ms = time
            case ExecutorAdded(time=time, id=name, info=executor):
                if name in self.executors:  # the same one again: it does not count twice
                    before = self.lives[self.executors[name]]
                    before.removed_ms = min(before.removed_ms, time)
                self.executors[name] = len(self.lives)
                self.lives.append(Executor(executor.cores, executor.profile, time))
            case ExecutorRemoved(time=time, id=name):
                if name in self.executors:
                    self.lives[self.executors[name]].removed_ms = time
            case ResourceProfile():
                self.profiles[event.id] = event
            case Environment(properties=properties):
                cpus = str(properties.get("spark.task.cpus", "1"))
                if cpus.isascii() and cpus.isdigit() and int(cpus[:6]) >= 1:
                    self.task_cpus = int(cpus[:6])
            case LogStart(version=version):
                self.version = version
            case ApplicationStart():
                self.started = True
                self.id, self.attempt, self.user = event.id, event.attempt, event.user
            case ApplicationEnd(time=time):
                self.ended, self.ended_ms = True, time

    def close(self) -> None:
        """Finish what has no end, and say so."""
        for unit in self.units:
            if unit.execution or not all(map(self.has_ended, unit.jobs)):
                link(unit, self.has_ended, self.findings)
        for where in self._running.values():
            self.findings.add("dropped", "task has not ended when its log ends", where)
        self._running.clear()
        ended_ms = max(self.ended_ms or 0, max(self.tasks.finish_ms, default=0))
        for life in self.lives:
            life.removed_ms = max(life.added_ms, min(life.removed_ms, ended_ms))

    def has_ended(self, job: int) -> bool:
        return self.jobs[job].ended

    # Jobs and SQL executions.

    def _job_start(self, event: JobStart, where: str) -> None:
        if event.id in self.jobs:
            self.findings.add("dropped", "job starts a second time", where)
            return
        execution = self._execution_of(event)
        if execution is None:
            index = len(self.units)
            self.units.append(Unit(f"job{event.id}", where, execution=False))
        else:
            index = self._execution(execution, where)
        unit = self.units[index]
        if execution is None or unit.submitted_ms is None:
            unit.submitted_ms = event.time
        self.jobs[event.id] = Job(index)
        unit.jobs[event.id] = (event.time, None)
        for info in event.infos:
            self._list(index, event.id, info, where)
        for stage in event.stages:  # before Spark 1.2, all that is said of them
            self._listed(stage, event.id)

    def _execution_of(self, event: JobStart) -> int | None:
        """The SQL execution that a job belongs to, if that is asked for: the outermost one."""
        if not self.per_execution or event.properties is None:
            return None
        name = event.properties.root or event.properties.execution
        if name is None or not (name.isascii() and name.isdigit() and len(name) < 19):
            return None
        return int(name)

    def _execution(self, execution: int, where: str) -> int:
        index = self._executions.setdefault(execution, len(self.units))
        if index == len(self.units):
            self.units.append(Unit(f"sql{execution}", where, execution=True))
        return index

    def _job_end(self, event: JobEnd, where: str) -> None:
        job = self.jobs.get(event.id)
        if job is None:
            self.findings.add("dropped", "job ends whose start is not in the log", where)
            return
        if job.ended:
            self.findings.add("dropped", "job ends a second time", where)
            return
        job.ended = True
        unit = self.units[job.unit]
        unit.results.append(event.result.result)
        unit.jobs[event.id] = (unit.jobs[event.id][0], event.time)
        if not unit.execution:
            self._forget_skipped(unit)

    def _forget_skipped(self, unit: Unit) -> None:
        """Link a job when it ends: an iterative one may list thousands of stages and skip most."""
        listed = list(unit.stages)
        link(unit, self.has_ended, self.findings)
        for gone in listed:
            if gone not in unit.stages:
                self._listing[gone] = [job for job in self._listing[gone] if job not in unit.jobs]
                if not self._listing[gone]:
                    del self._listing[gone]
        for stage in unit.stages.values():
            stage.done.clear()

    # Stages.

    def _list(self, unit_index: int, job: int, info: StageInfo, where: str) -> Stage:
        """Note that a job lists a stage, and what is said of it."""
        stages = self.units[unit_index].stages
        stage = stages.get(info.id)
        if stage is None:
            stage = stages[info.id] = Stage(
                id=info.id,
                tasks=info.tasks,
                parents=None if info.parents is None else tuple(info.parents),
                rdd=info.rdds[0].id if info.rdds else None,
                barrier=any(rdd.barrier for rdd in info.rdds),
                jobs=[],
                where=where,
            )
        if job not in stage.jobs:
            stage.jobs.append(job)
        self._listed(info.id, job)
        return stage

    def _listed(self, stage: int, job: int) -> None:
        listing = self._listing.setdefault(stage, [])
        if job not in listing[-1:]:
            listing.append(job)

    def _owner(self, stage: int) -> int | None:
        """The job that runs a stage: of those that list it and have not ended, the first one.

        That is whom Spark's scheduler runs it for. Where all have ended, it is the last one.
        """
        listing = self._listing.get(stage)
        if not listing:
            return None
        return min((job for job in listing if not self.jobs[job].ended), default=listing[-1])

    def _stage_submitted(self, info: StageInfo, where: str) -> None:
        job = self._owner(info.id)
        if job is None:
            self.findings.add("dropped", "stage of no job that the log has started", where)
            return
        index = self.jobs[job].unit
        known = info.id in self.units[index].stages
        stage = self._list(index, job, info, where)
        if not stage.ran:
            # A first attempt knows best how many tasks there are; a later one has some of them.
            stage.tasks = info.tasks if info.attempt == 0 or not known else stage.tasks
            stage.ran, stage.where = True, where
            stage.submitted_ms = info.submitted
        self._attempts[info.id, info.attempt] = (index, stage)

    def _stage_completed(self, info: StageInfo, where: str) -> None:
        run = self._attempts.get((info.id, info.attempt))
        if run is not None and info.completed is not None:
            stage = run[1]
            stage.completed_ms = max(stage.completed_ms or 0, info.completed)
            if stage.submitted_ms is None:
                stage.submitted_ms = info.submitted

    # Tasks.

    def _run(self, stage: int, attempt: int) -> tuple[int, Stage] | None:
        """The unit and stage that a task belongs to, also where its stage's start is missing."""
        run = self._attempts.get((stage, attempt))
        if run is None:
            job = self._owner(stage)
            if job is None:
                return None
            index = self.jobs[job].unit
            listed = self.units[index].stages.get(stage)
            if listed is None:
                return None
            listed.ran = True
            run = self._attempts[stage, attempt] = (index, listed)
        return run

    def _task_end(self, event: TaskEnd, where: str) -> None:
        info = event.info
        self._running.pop(info.id, None)
        reason = event.reason.reason
        if reason == "Resubmitted":
            # Not an attempt of its own: the output of one that had succeeded was lost.
            self.findings.add(
                "dropped", "task succeeded, lost its output with an executor, and ran again", where
            )
            return
        run = self._run(event.stage, event.attempt)
        if run is None:
            self.findings.add("dropped", "task of no stage that the log has started", where)
            return
        index, stage = run
        tasks = self.tasks
        tasks.unit.append(index)
        tasks.stage.append(stage.id)
        tasks.executor.append(self._executor(info.executor, info.launch))
        tasks.launch_ms.append(info.launch)
        run_ms = None if event.metrics is None else event.metrics.run_ms
        backwards = info.finish < info.launch
        tasks.finish_ms.append(info.launch + (run_ms or 0) if backwards else info.finish)
        tasks.kept.append(False)
        if reason != "Success":
            known = reason if reason in _REASONS else "another reason"
            self.findings.add("dropped", f"task attempt did not succeed: {known}", where)
        elif stage.kept >= stage.tasks or _key(event) in stage.done:
            self.findings.add("dropped", "task had succeeded before, in another attempt", where)
        elif stage.id not in self.units[index].stages:
            self.findings.add("dropped", "task that ends after its job", where)
        elif backwards and run_ms is None:
            self.findings.add("dropped", "duration of a task that ends before it starts", where)
        else:
            if backwards:
                self.findings.add(
                    "repaired", "task ends before it starts: took its executor's run time", where
                )
            stage.done.add(_key(event))
            stage.kept += 1
            tasks.kept[-1] = True

    def _executor(self, name: str, launch_ms: int) -> int:
        """The executor that a task ran on; one that was never added is taken in here."""
        life = self.executors.get(name)
        if life is None:
            life = self.executors[name] = len(self.lives)
            self.lives.append(Executor(None, 0, launch_ms))
        executor = self.lives[life]
        if executor.cores is None:
            executor.added_ms = min(executor.added_ms, launch_ms)
        return life


def _key(event: TaskEnd) -> int:
    """What tells tasks of a stage apart: the partition, or in old logs the attempt's index.

    In a later attempt of a stage, the index counts only the tasks that had to run again.
    """
    info = event.info
    if info.partition is not None and info.partition >= 0:
        return info.partition
    return (event.attempt << 32) | info.index
