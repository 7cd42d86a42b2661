"""What is to be said of a workload before it runs on a cluster: what cannot, or will not, go well.

A job that asks for more than there is would wait for ever; offered more work than a cluster can do,
its queue grows for as long as jobs arrive; and through long gaps a scheduler has nothing to decide.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

import numpy as np
from msgspec import Struct

from ganger.errors import WorkloadError
from ganger.workload.classes import ExecutorClass
from ganger.workload.model import Job, PerTask, Pool, Stage, task_estimate_s

DAY_S = 86400.0
GAP_TO_MEAN = 20.0
"""A gap is worth a word if it is longer than a day, and than so many mean interarrivals."""

_INSTANT_S = 1e-9

NAMED = 5
"""How many jobs a message names."""


class Misfit(Struct, frozen=True):
    """A stage that asks for more executors at once than there are."""

    job: str
    stage: str
    asks: int
    there_are: int
    """Of one class that meets its demand, where executors have classes."""


class Verdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to be said."""

    severity: Literal["error", "warning", "note"]
    """error: a run would never end. warning: its figures will mislead who does not know this."""

    kind: Literal["never_fits", "overload", "demands", "gaps"]
    message: str
    misfits: tuple[Misfit, ...] = ()


def verdicts(
    jobs: Sequence[Job], executors: int, classes: Sequence[ExecutorClass] = ()
) -> list[Verdict]:
    """Everything to be said of jobs, sorted by arrival, on a cluster; worst first."""
    found = never_fit(((job.id, job.stages) for job in jobs), executors, classes)
    load = offered_load(jobs, executors)
    if load is not None:
        found += _overload(load, executors)
    if not classes:
        found += _demands(job.stages for job in jobs)
    return found + gaps(jobs)


def template_verdicts(
    templates: Sequence[tuple[Stage, ...]],
    executors: int,
    interarrival_s: float,
    classes: Sequence[ExecutorClass] = (),
) -> list[Verdict]:
    """Everything to be said of random jobs on a cluster; templates are named by their index."""
    named = ((f"template {i}", stages) for i, stages in enumerate(templates))
    found = never_fit(named, executors, classes)
    if interarrival_s > 0 and templates:
        mean_s = math.fsum(map(measured_work_s, templates)) / len(templates)
        found += _overload(mean_s / (interarrival_s * executors), executors)
    return found if classes else found + _demands(templates)


def refuse_misfits(found: Iterable[Verdict]) -> None:
    """Stop before a run that would never end.

    Raises:
        WorkloadError: with the first error among the verdicts.
    """
    for verdict in found:
        if verdict.severity == "error":
            raise WorkloadError(verdict.message)


def without_misfits(
    jobs: Sequence[Job], executors: int, classes: Sequence[ExecutorClass] = ()
) -> tuple[Job, ...]:
    """The jobs less those that can never run.

    Raises:
        WorkloadError: if that is all of them.
    """
    found = never_fit(((job.id, job.stages) for job in jobs), executors, classes)
    unfit = {misfit.job for verdict in found for misfit in verdict.misfits}
    if jobs and len(unfit) == len(jobs):
        refuse_misfits(found)
    return tuple(job for job in jobs if job.id not in unfit)


def offered_load(jobs: Sequence[Job], executors: int) -> float | None:
    """Work that arrives per second and executor, from the first arrival to the last.

    None if all jobs arrive at once, to the nanosecond.
    """
    span_s = jobs[-1].arrival_s - jobs[0].arrival_s if jobs else 0.0
    if span_s < _INSTANT_S:
        return None
    work: dict[int, float] = {}
    total_s = 0.0
    for job in jobs:
        key = id(job.stages)
        if key not in work:
            work[key] = measured_work_s(job.stages)
        total_s += work[key]
    return total_s / (span_s * executors)


def measured_work_s(stages: Iterable[Stage]) -> float:
    """Executor-seconds that a job takes, whatever a scheduler is told: task count x mean, summed.

    Of durations that depend on what an executor did before, the estimate counts.
    """
    return math.fsum(stage.task_count * measured_task_s(stage) for stage in stages)


def measured_task_s(stage: Stage) -> float:
    """Mean seconds that a task of the stage takes."""
    match stage.durations:
        case PerTask(values_s=values) | Pool(values_s=values):
            return math.fsum(values) / len(values)
    return task_estimate_s(stage)


def never_fit(
    jobs: Iterable[tuple[str, tuple[Stage, ...]]],
    executors: int,
    classes: Sequence[ExecutorClass] = (),
) -> list[Verdict]:
    """The verdict on jobs, with their names, that ask for more executors at once than there are.

    Where executors have classes, those that meet a stage's demand count; a gang runs in one class.
    """
    misfits = []
    for name, stages in jobs:
        for stage in stages:
            asks, there_are = stage.task_count if stage.gang else 1, executors
            if classes:
                there_are = max((c.count for c in classes if c.serves(stage.demand)), default=0)
            if asks > there_are:
                misfits.append(Misfit(name, stage.id, asks, there_are))
    if not misfits:
        return []
    most: dict[str, int] = {}
    for misfit in misfits:
        most[misfit.job] = max(misfit.asks, most.get(misfit.job, 0))
    count = len(most)
    names = [f"{job!r} asks for {asks:,}" for job, asks in islice(most.items(), NAMED)]
    if count > NAMED:
        names.append(f"and so do {count - NAMED:,} more")
    return [
        Verdict(
            severity="error",
            kind="never_fits",
            message=f"{count:,} {'job' if count == 1 else 'jobs'} can never run on {executors:,} "
            f"executors: at once {', '.join(names)}" + _of_classes(misfits, classes),
            misfits=tuple(misfits),
        )
    ]


def _of_classes(misfits: Sequence[Misfit], classes: Sequence[ExecutorClass]) -> str:
    if not classes:
        return ""
    sizes = ", ".join(f"{c.count:,} {c.name}{c.size}" for c in classes)
    most = max(misfit.there_are for misfit in misfits)
    return f"; of a class that meets their demands there are at most {most:,}, of {sizes}"


def _overload(load: float, executors: int) -> list[Verdict]:
    if load <= 1.0:
        return []
    message = (
        f"{load:.2f} times as much work arrives as {executors:,} executors can do: queues grow for "
        "as long as jobs arrive, and waits say how long that was"
    )
    return [Verdict(severity="warning", kind="overload", message=message)]


def _demands(jobs: Iterable[tuple[Stage, ...]]) -> list[Verdict]:
    """What jobs ask of an executor, which a cluster of executors without a size does not tell."""
    asking, cores, memory = 0, 0.0, 0.0
    for stages in jobs:
        demands = [stage.demand for stage in stages if stage.demand is not None]
        asking += bool(demands)
        for demand in demands:
            cores, memory = max(cores, demand.cores), max(memory, demand.memory)
    if not asking:
        return []
    message = (
        f"{asking:,} {'job asks' if asking == 1 else 'jobs ask'} for executors of some size (at "
        f"most {cores:g} cores, {memory:.4g} of memory): every executor is taken to have it"
    )
    return [Verdict(severity="note", kind="demands", message=message)]


def gaps(jobs: Sequence[Job]) -> list[Verdict]:
    """Long times without an arrival, if there are any."""
    if len(jobs) < 3:
        return []
    arrivals_s = np.array([job.arrival_s for job in jobs])
    between_s = np.diff(arrivals_s)
    least_s = max(DAY_S, GAP_TO_MEAN * float(between_s.mean()))
    long = np.flatnonzero(between_s >= least_s)
    if len(long) == 0:
        return []
    longest = int(between_s.argmax())
    times = "once" if len(long) == 1 else f"{len(long):,} times"
    message = (
        f"{times} nothing arrives for {least_s / DAY_S:.1f} days or more; at most for "
        f"{between_s[longest] / DAY_S:.1f} days, after job {jobs[longest].id!r} at "
        f"{arrivals_s[longest]:,.0f} s"
    )
    return [Verdict(severity="note", kind="gaps", message=message)]
