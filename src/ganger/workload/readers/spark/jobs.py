"""From what an application did to jobs: its units' stages, their edges, and measured durations."""

from dataclasses import dataclass, field

import numpy as np

from ganger.workload.model import Durations, Pool, Stage, Wave, Waves
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.spark.application import Application
from ganger.workload.readers.spark.executors import (
    SlotCount,
    Slots,
    mean_level,
    most_at_once,
    slots_of,
)
from ganger.workload.readers.spark.unit import Unit


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


def drafts(application: Application, findings: Findings, where: str) -> list[Draft]:
    """The jobs of one application; `where` names its log."""
    _count_slots(application, findings, where)
    measured, spans = _measure(application)
    made = []
    for index, unit in enumerate(application.units):
        stages = _stages(application, index, measured, findings)
        if stages:
            made.append(_draft(application, unit, stages, spans[index], findings))
        elif unit.lost:
            findings.add("dropped", "job of which no duration is in the log", unit.where)
        else:
            findings.add("noted", "job or SQL execution without a task to run", unit.where)
    return made


def _count_slots(application: Application, findings: Findings, where: str) -> None:
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


def _measure(
    application: Application,
) -> tuple[dict[tuple[int, int], _Measured], dict[int, _Span]]:
    """Go through all tasks by launch time, and sort their durations by stage and kind."""
    tasks = application.tasks
    measured: dict[tuple[int, int], _Measured] = {}
    spans: dict[int, _Span] = {}
    count = SlotCount(application.lives)
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
    application: Application,
    index: int,
    measured: dict[tuple[int, int], _Measured],
    findings: Findings,
) -> tuple[Stage, ...]:
    """The stages of a unit of which there are durations, with the edges between them."""
    unit = application.units[index]
    stages = []
    for stage in sorted(unit.stages.values(), key=lambda stage: stage.id):
        values = measured.get((index, stage.id))
        if values is None:  # it was submitted after its job had ended
            findings.add("dropped", "stage of which no duration is in the log", stage.where)
            continue
        known = len(values.levels)
        if known < stage.tasks:
            findings.add(
                "guessed",
                "duration of a task that is not in the log: like the others of its stage",
                stage.where,
                stage.tasks - known,
            )
        if stage.barrier:
            findings.add("noted", "barrier stage: a gang as long as its longest task", stage.where)
        stages.append(
            Stage(
                id=str(stage.id),
                parents=tuple(str(parent) for parent in sorted(unit.parents.get(stage.id, ()))),
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


def _draft(
    application: Application,
    unit: Unit,
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
