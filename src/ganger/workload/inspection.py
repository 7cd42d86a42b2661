"""What is in a workload: counts, distributions, the shape of DAGs, when jobs arrive, the load."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ganger.errors import WorkloadError
from ganger.workload.model import Job, Stage, topological_order
from ganger.workload.readers.findings import Findings
from ganger.workload.sources import FileSource, JobSource
from ganger.workload.verdicts import (
    Verdict,
    gaps,
    measured_task_s,
    measured_work_s,
    offered_load,
    verdicts,
)

BINS = 24

_Floats = npt.NDArray[np.float64]


class Distribution(Struct, frozen=True):
    """How a figure is spread. Bins are even in the logarithm of 1 + value, from least to most."""

    count: int
    mean: float
    least: float
    median: float
    p90: float
    p99: float
    most: float
    histogram: tuple[int, ...]


class Shape(Struct, frozen=True):
    """The DAGs of jobs: medians and extremes tell chains from fans."""

    jobs_of_one_stage: int
    jobs_with_gangs: int
    stages: Distribution
    depth: Distribution
    """Stages on the longest path."""

    width: Distribution
    """Most stages at one distance from the roots."""

    serial_share: float
    """Time on the critical path of mean tasks over time of all tasks one after the other, averaged
    over jobs: 1 if nothing can run in parallel."""


class Arrivals(Struct, frozen=True):
    """When jobs arrive."""

    span_s: float
    interarrival_s: Distribution | None
    by_hour: tuple[int, ...]
    """24 counts: hours of the day there, or of days that begin with the first arrival."""

    by_weekday: tuple[int, ...] | None
    """7 counts from Monday; None if the log does not say when it was."""

    first: str | None
    last: str | None
    """ISO 8601 where the cluster stood; None if the log does not say."""


class Finding(Struct, frozen=True):
    """What a reader did, how often, and where first."""

    action: str
    reason: str
    count: int
    places: tuple[str, ...]


class Inspection(Struct, frozen=True, kw_only=True):
    """Everything that `ganger inspect` tells."""

    workload: str
    format: str
    version: str
    files: int
    rows: int
    jobs: int
    distinct_jobs: int
    """Jobs alike, of one user or several, count once."""

    stages: int
    tasks: int
    work_s: float
    """Executor-seconds of all tasks."""

    users: int
    busiest_user: str | None
    busiest_user_share: float | None
    """Of all executor-seconds."""

    sizes: Distribution
    """Tasks of a job: the processors of a batch job."""

    job_work_s: Distribution
    task_s: Distribution
    """Mean task durations of stages."""

    limit_s: Distribution | None
    """Requested run times, where there are any."""

    wait_s: Distribution | None
    """From arrival to start, where they were recorded."""

    shape: Shape
    arrivals: Arrivals
    executors: int | None
    executors_from: str | None
    """"given", or "log" if the log says how big its cluster was."""

    load: float | None
    """Work offered over what the executors could do between the first arrival and the last."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


def inspect(source: JobSource, executors: int | None = None) -> Inspection:
    """Look at everything in a source.

    Args:
        executors: of the cluster that load and verdicts are about; the log's own if None.

    Raises:
        WorkloadError: if there are no jobs.
    """
    if isinstance(source, FileSource):
        jobs, findings = source.workload().jobs, source.findings
    else:
        templates = source.templates("train")
        jobs = tuple(Job(id=str(i), arrival_s=0.0, stages=s) for i, s in enumerate(templates))
        findings = Findings(format="generated" if source.name.startswith("synth") else "TPC-H")
    if not jobs:
        raise WorkloadError(f"{source.name}: there are no jobs; expected 1 or more")
    executors_from = "given" if executors is not None else None
    if executors is None and findings.executors is not None:
        executors, executors_from = findings.executors, "log"

    facts = [_facts(stages) for stages in {id(job.stages): job.stages for job in jobs}.values()]
    index = {key: i for i, key in enumerate({id(job.stages): None for job in jobs})}
    of_job = np.array([index[id(job.stages)] for job in jobs], np.int64)
    columns = np.array([fact[:-2] for fact in facts], np.float64).reshape(len(facts), -1)
    stages, tasks, work_s, depth, width, serial, gang = columns[of_job].T
    per_stage = [np.array([fact[i] for fact in facts], object) for i in (-2, -1)]
    task_s, limits_s = (
        np.array([value for values in column[of_job] for value in values], np.float64)
        for column in per_stage
    )
    waits_s = np.array(
        [
            job.recorded.start_s - job.arrival_s
            for job in jobs
            if job.recorded is not None and job.recorded.start_s is not None
        ]
    )
    by_user: dict[str, float] = {}
    for job, seconds in zip(jobs, work_s.tolist(), strict=True):
        if job.user is not None:
            by_user[job.user] = by_user.get(job.user, 0.0) + seconds
    busiest = max(by_user, key=lambda user: (by_user[user], user), default=None)
    total_s = math.fsum(work_s)
    return Inspection(
        workload=source.name,
        format=findings.format,
        version=findings.version,
        files=findings.files,
        rows=findings.rows,
        jobs=len(jobs),
        distinct_jobs=len(facts),
        stages=int(stages.sum()),
        tasks=int(tasks.sum()),
        work_s=total_s,
        users=len(by_user),
        busiest_user=busiest,
        busiest_user_share=by_user[busiest] / total_s if busiest is not None and total_s else None,
        sizes=_distribution(tasks),
        job_work_s=_distribution(work_s),
        task_s=_distribution(task_s),
        limit_s=_distribution(limits_s) if len(limits_s) else None,
        wait_s=_distribution(waits_s) if len(waits_s) else None,
        shape=Shape(
            jobs_of_one_stage=int((stages == 1).sum()),
            jobs_with_gangs=int((gang > 0).sum()),
            stages=_distribution(stages),
            depth=_distribution(depth),
            width=_distribution(width),
            serial_share=float(serial.mean()),
        ),
        arrivals=_arrivals(jobs, findings),
        executors=executors,
        executors_from=executors_from,
        load=None if executors is None else offered_load(jobs, executors),
        findings=tuple(
            Finding(found.action, found.reason, found.count, tuple(found.places))
            for found in findings.found.values()
        ),
        notes=tuple(findings.notes),
        verdicts=tuple(gaps(jobs) if executors is None else verdicts(jobs, executors)),
    )


def _facts(
    stages: tuple[Stage, ...],
) -> tuple[int, int, float, int, int, float, int, tuple[float, ...], tuple[float, ...]]:
    """Of one distinct job: stages, tasks, work, depth, width, serial share, gangs, task seconds of
    each stage, limits of those that have one."""
    seconds = tuple(measured_task_s(stage) for stage in stages)
    limits = tuple(stage.limit_s for stage in stages if stage.limit_s is not None)
    gangs = sum(stage.gang for stage in stages)
    work_s = measured_work_s(stages)
    tasks = sum(stage.task_count for stage in stages)
    if len(stages) == 1:
        serial = 1.0 if stages[0].gang else 1.0 / tasks
        return 1, tasks, work_s, 1, 1, serial, gangs, seconds, limits
    level: dict[str, int] = {}
    finish_s: dict[str, float] = {}
    for i in topological_order(stages):
        stage = stages[i]
        level[stage.id] = 1 + max((level[parent] for parent in stage.parents), default=0)
        begin_s = max((finish_s[parent] for parent in stage.parents), default=0.0)
        finish_s[stage.id] = begin_s + seconds[i]
    width = int(np.bincount(list(level.values())).max())
    # A gang's tasks are one after the other only if there is one of them.
    serial_s = math.fsum(
        s * (1 if stage.gang else stage.task_count)
        for s, stage in zip(seconds, stages, strict=True)
    )
    serial = max(finish_s.values()) / serial_s if serial_s else 1.0
    depth = max(level.values())
    return len(stages), tasks, work_s, depth, width, min(serial, 1.0), gangs, seconds, limits


def _distribution(values: _Floats) -> Distribution:
    """Of one value or more."""
    least, most = float(values.min()), float(values.max())
    scaled = np.log1p(values - least)
    counts, _ = np.histogram(scaled, bins=BINS, range=(0.0, float(scaled.max()) or 1.0))
    median, p90, p99 = (float(v) for v in np.percentile(values, (50, 90, 99)))
    return Distribution(
        count=len(values),
        mean=float(values.mean()),
        least=least,
        median=median,
        p90=p90,
        p99=p99,
        most=most,
        histogram=tuple(counts.tolist()),
    )


def _arrivals(jobs: Sequence[Job], findings: Findings) -> Arrivals:
    arrivals_s = np.array([job.arrival_s for job in jobs])
    between_s = np.diff(arrivals_s)
    epoch_s = findings.epoch_s
    first = last = by_weekday = None
    local_s = arrivals_s
    if epoch_s is not None:
        zone = _zone(findings.timezone)
        try:
            first_time = datetime.fromtimestamp(epoch_s, UTC).astimezone(zone)
            last_time = (datetime.fromtimestamp(epoch_s + arrivals_s[-1], UTC)).astimezone(zone)
        except (OverflowError, ValueError, OSError):
            epoch_s = None  # no date that a calendar knows
        else:
            first, last = (time.isoformat(timespec="seconds") for time in (first_time, last_time))
            local_s = arrivals_s + epoch_s + _offsets_s(arrivals_s + epoch_s, zone)
            # 1 January 1970 was a Thursday.
            days = (np.floor(local_s / 86400.0).astype(np.int64) + 3) % 7
            by_weekday = tuple(np.bincount(days, minlength=7).tolist())
    hours = np.floor(local_s / 3600.0).astype(np.int64) % 24
    return Arrivals(
        span_s=float(arrivals_s[-1] - arrivals_s[0]),
        interarrival_s=_distribution(between_s) if len(between_s) else None,
        by_hour=tuple(np.bincount(hours, minlength=24).tolist()),
        by_weekday=by_weekday,
        first=first,
        last=last,
    )


def _offsets_s(times_s: _Floats, zone: tzinfo) -> _Floats:
    """Seconds by which local clocks are ahead of UTC. A zone changes them on the hour at most."""
    hours, inverse = np.unique(np.floor(times_s / 3600.0), return_inverse=True)
    offsets = [
        (datetime.fromtimestamp(hour * 3600.0, zone).utcoffset() or timedelta()).total_seconds()
        for hour in hours.tolist()
    ]
    return np.array(offsets)[inverse]


def _zone(name: str | None) -> tzinfo:
    """What findings call a time zone: a name, or an offset as "+01:00"; UTC if None."""
    if name is None:
        return UTC
    if name[0] in "+-":
        minutes = int(name[1:3]) * 60 + int(name[4:6])
        return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    return ZoneInfo(name)
