"""From what an application did to jobs: its units' stages, their edges, and measured durations."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ganger.workload.model import Durations, Pool, Stage, Wave, Waves
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.spark import application as log
from ganger.workload.readers.spark.executors import (
    SlotCount,
    Slots,
    mean_level,
    most_at_once,
    slots_of,
)


@dataclass(slots=True)
class Draft:
    """A job with the log's own times, in milliseconds."""

    name: str
    where: str
    arrival_ms: int
    start_ms: int | None
    finish_ms: int | None
    status: str | None
    stages: tuple[Stage, ...]


@dataclass(slots=True)
class _Measured:
    """The durations of one stage, in seconds, by what the slot did before."""

    fresh: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    rest: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Span:
    """When a unit's tasks ran."""

    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Drafts:
    """What became of one application."""

    slots: SlotCount
    jobs: list[Draft] = field(default_factory=list)
    empty: int = 0
    """Units that ran no task because they had none to run."""
    skipped: int = 0
    """Stages that Spark skipped."""
    gangs: int = 0


def drafts(application: log.Application, findings: Findings, where: str) -> Drafts:
    """The jobs of one application; `where` names its log."""
    result = Drafts(_count_slots(application, findings, where))
    measured, spans = _measure(application, result.slots)
    for index, unit in enumerate(application.units):
        if not unit.jobs:
            result.empty += 1
            continue
        stages = _stages(application, index, measured, findings, result)
        if not stages:
            if any(stage.ran for stage in unit.stages.values()):
                findings.add("dropped", "job of which no duration is in the log", unit.where)
            else:
                result.empty += 1
            continue
        result.jobs.append(_draft(application, unit, stages, spans[index], findings))
    return result


def _count_slots(application: log.Application, findings: Findings, where: str) -> SlotCount:
    """Give every executor its slots, from its cores or, if they are unknown, from what it ran."""
    unknown = [i for i, life in enumerate(application.lives) if life.cores is None]
    spans: dict[int, list[tuple[int, int]]] = {i: [] for i in unknown}
    if unknown:
        tasks = application.tasks
        for i, start, end in zip(tasks.executor, tasks.launch_ms, tasks.finish_ms, strict=True):
            if i in spans:
                spans[i].append((start, end))
    for i, life in enumerate(application.lives):
        if i in spans:
            life.slots = most_at_once(spans[i])
            findings.add("guessed", "cores of an executor: as many as it ran tasks at once", where)
        else:
            profile = application.profiles.get(life.profile)
            life.slots = slots_of(life, profile, application.task_cpus)
    return SlotCount(application.lives)


def _measure(
    application: log.Application, count: SlotCount
) -> tuple[dict[tuple[int, int], _Measured], dict[int, _Span]]:
    """Go through all tasks by launch time, and sort their durations by stage and kind."""
    tasks = application.tasks
    measured: dict[tuple[int, int], _Measured] = {}
    spans: dict[int, _Span] = {}
    slots = [Slots(life.slots) for life in application.lives]
    launches = np.frombuffer(tasks.launch_ms, np.int64) if len(tasks) else np.empty(0, np.int64)
    for i in np.argsort(launches, kind="stable").tolist():
        unit, stage = tasks.unit[i], tasks.stage[i]
        launch_ms, finish_ms = tasks.launch_ms[i], tasks.finish_ms[i]
        kind = slots[tasks.executor[i]].run(launch_ms, finish_ms, unit, stage)
        span = spans.get(unit)
        if span is None:
            span = spans[unit] = _Span(launch_ms, finish_ms)
        span.last_ms = max(span.last_ms, finish_ms)
        if not tasks.kept[i]:
            continue
        values = measured.get((unit, stage))
        if values is None:
            values = measured[unit, stage] = _Measured()
        getattr(values, kind).append((finish_ms - launch_ms) / 1000.0)
        values.levels.append(count.at(launch_ms))
    return measured, spans


def _stages(
    application: log.Application,
    index: int,
    measured: dict[tuple[int, int], _Measured],
    findings: Findings,
    result: Drafts,
) -> tuple[Stage, ...]:
    """The stages of a unit of which there are durations, with the edges between them."""
    unit = application.units[index]
    ran = []
    for stage in unit.stages.values():
        if (index, stage.id) in measured:
            ran.append(stage)
        elif stage.ran:
            findings.add("dropped", "stage of which no duration is in the log", stage.where)
        elif not all(application.jobs[job].ended for job in stage.jobs):
            findings.add("dropped", "stage that had not started when its log ends", stage.where)
        elif "JobFailed" in unit.results:
            findings.add("dropped", "stage that did not run, of a job that failed", stage.where)
        else:
            result.skipped += 1
    ran.sort(key=lambda stage: stage.id)
    parents = _parents(unit, ran, findings)
    _follow_ended_jobs(unit, ran, parents, findings)
    stages = []
    for stage in ran:
        values = measured[index, stage.id]
        known = len(values.levels)
        if known < stage.tasks:
            findings.add(
                "guessed",
                "duration of a task that is not in the log: like the others of its stage",
                stage.where,
                stage.tasks - known,
            )
        result.gangs += stage.barrier
        stages.append(
            Stage(
                id=str(stage.id),
                parents=tuple(str(parent) for parent in sorted(parents[stage.id])),
                task_count=stage.tasks,
                durations=_durations(values, stage.barrier),
                gang=stage.barrier,
            )
        )
    return tuple(stages)


def _durations(values: _Measured, barrier: bool) -> Durations:
    if barrier:  # its tasks wait for each other: each holds its slot as long as the longest
        return Pool((max((*values.fresh, *values.first, *values.rest)),))
    level = Wave(
        executors=mean_level(values.levels),
        fresh_s=tuple(values.fresh),
        first_s=tuple(values.first),
        rest_s=tuple(values.rest),
    )
    return Waves(levels=(level,))


def _parents(unit: log.Unit, ran: Iterable[log.Stage], findings: Findings) -> dict[int, set[int]]:
    """The parents of each stage that ran, among those that ran.

    A stage that did not run is bridged: its output was made by a stage of the same RDD if one ran
    before it in the unit, else its parents take its place.
    """
    ids = {stage.id for stage in ran}
    makers: dict[int, list[int]] = {}
    stands_for: dict[int, set[int]] = {}
    parents: dict[int, set[int]] = {}
    before: dict[int, int] = {}
    for stage in sorted(unit.stages.values(), key=lambda stage: stage.id):
        above: set[int] = set()
        for parent in _listed_parents(stage, before, findings):
            # Spark numbers a stage after its parents, so this keeps out cycles.
            if parent in stands_for:
                above |= stands_for[parent]
            else:
                findings.add("dropped", "parent that is no earlier stage of its job", stage.where)
        for job in stage.jobs:
            before[job] = stage.id
        if stage.id in ids:
            parents[stage.id] = above
            stands_for[stage.id] = {stage.id}
            if stage.rdd is not None:
                makers.setdefault(stage.rdd, []).append(stage.id)
        elif stage.rdd in makers:
            stands_for[stage.id] = {makers[stage.rdd][-1]}
        else:
            stands_for[stage.id] = above
    return parents


def _listed_parents(
    stage: log.Stage, before: dict[int, int], findings: Findings
) -> tuple[int, ...]:
    """What the log says, or, before Spark 1.4, the stage with the number before in its job."""
    if stage.parents is not None:
        return stage.parents
    last = {before[job] for job in stage.jobs if job in before}
    if last:
        findings.add("guessed", "parents that the log does not tell: the stage before", stage.where)
    return tuple(last)


def _follow_ended_jobs(
    unit: log.Unit, ran: list[log.Stage], parents: dict[int, set[int]], findings: Findings
) -> None:
    """Within a SQL execution, let a job that depends on no other one follow those that had ended.

    Spark submits what it can at once, so a job that came after others had ended waited for them: a
    broadcast, a listing of files, a sample.
    """
    if len(unit.jobs) < 2:
        return
    job_of = {stage.id: stage.jobs[0] for stage in ran}
    for job in dict.fromkeys(job_of.values()):
        own = [stage for stage in ran if stage.jobs[0] == job]
        inside = {stage.id for stage in own}
        submitted_ms = unit.jobs[job][0]
        if submitted_ms is None or any(parents[stage] - inside for stage in inside):
            continue
        earlier = {
            stage
            for stage, other in job_of.items()
            if stage < min(inside) and _ended_by(unit, other, submitted_ms)
        }
        # Only the last ones of each chain.
        earlier -= {parent for stage in earlier for parent in parents[stage]}
        if not earlier:
            continue
        for stage in own:
            if not parents[stage.id]:
                parents[stage.id] = set(earlier)
        findings.add(
            "guessed",
            "job of a SQL execution follows those that had ended when it came",
            own[0].where,
        )


def _ended_by(unit: log.Unit, job: int, time_ms: int) -> bool:
    ended_ms = unit.jobs[job][1]
    return ended_ms is not None and ended_ms <= time_ms


def _draft(
    application: log.Application,
    unit: log.Unit,
    stages: tuple[Stage, ...],
    span: _Span,
    findings: Findings,
) -> Draft:
    arrival_ms = unit.submitted_ms
    if arrival_ms is None:
        submitted = [s.submitted_ms for s in unit.stages.values() if s.submitted_ms is not None]
        arrival_ms = min(*submitted, span.first_ms) if submitted else span.first_ms
        findings.add("guessed", "time a job was submitted: when its first stage was", unit.where)
    finish_ms = unit.finished_ms  # of a SQL execution, which may have further jobs to come
    ended = all(application.jobs[job].ended for job in unit.jobs) and (
        not unit.execution or finish_ms is not None or application.ended
    )
    if finish_ms is None and ended:
        times = [end for _, end in unit.jobs.values() if end is not None]
        if len(times) == len(unit.jobs):
            finish_ms = max(times)
        else:
            completed = [s.completed_ms for s in unit.stages.values() if s.completed_ms is not None]
            finish_ms = max((*completed, span.last_ms))
            findings.add("guessed", "time a job ended: when its last stage did", unit.where)
    if not ended:
        findings.add("dropped", "rest of a job that has not ended when its log ends", unit.where)
    if finish_ms is not None and finish_ms < max(arrival_ms, span.first_ms):
        findings.add("dropped", "end of a job, which is before its start", unit.where)
        finish_ms = None
    failed = [result for result in unit.results if result != "JobSucceeded"]
    status = (failed or unit.results or [""])[0]
    return Draft(
        name=unit.name,
        where=unit.where,
        arrival_ms=arrival_ms,
        start_ms=span.first_ms,
        finish_ms=finish_ms if ended else None,
        status=status if ended and status else None,
        stages=stages,
    )
