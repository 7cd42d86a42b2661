"""Parts and variants of a workload: a window, a sample, another load, no names, a split by time.

Every function gives a new workload whose first job arrives at 0, and leaves the old one alone. Jobs
that shared their stages still do.
"""

import math
import re
from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from ganger import streams
from ganger.errors import WorkloadError
from ganger.streams import Stream
from ganger.workload.model import Job, Recorded, Stage, Workload, topological_order

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_MOMENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhdw%]?)")
MOMENTS = "seconds, a number with s, m, h, d or w, or a percentage of the time between the first \
arrival and the last"


def moment_s(text: str, workload: Workload) -> float:
    """Seconds on the workload's clock, of text as "3600", "1.5h", "30d" or "80%".

    100% is after the last arrival.

    Raises:
        WorkloadError: if the text is none of these.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise WorkloadError(f"{text!r} is no moment; expected {MOMENTS}")
    value, unit = float(match[1]), match[2] or "s"
    if unit != "%":
        return value * _UNITS_S[unit]
    if value >= 100:
        return math.inf
    first_s, last_s = (workload.jobs[i].arrival_s for i in (0, -1)) if workload.jobs else (0.0, 0.0)
    return first_s + (last_s - first_s) * value / 100


def window(workload: Workload, spec: str) -> Workload:
    """Jobs that arrive from one moment until before another: "7d:14d", ":80%" or "1000:".

    Raises:
        WorkloadError: if the specification is malformed or nothing arrives in the window.
    """
    begin, colon, end = spec.partition(":")
    if not colon:
        raise WorkloadError(f"window {spec!r}: expected BEGIN:END, of which one may be left out")
    begin_s = moment_s(begin, workload) if begin.strip() else 0.0
    end_s = moment_s(end, workload) if end.strip() else math.inf
    jobs = [job for job in workload.jobs if begin_s <= job.arrival_s < end_s]
    if not jobs:
        raise WorkloadError(f"window {spec!r}: none of {len(workload.jobs)} jobs arrives in it")
    return _at_zero(jobs)


def split(workload: Workload, at: str) -> tuple[Workload, Workload]:
    """Jobs that arrive before a moment, and those that arrive then or later.

    Raises:
        WorkloadError: if one of the two would be empty.
    """
    cut_s = moment_s(at, workload)
    before = [job for job in workload.jobs if job.arrival_s < cut_s]
    after = [job for job in workload.jobs if job.arrival_s >= cut_s]
    for part, when in ((before, "before"), (after, "at or after")):
        if not part:
            raise WorkloadError(f"none of {len(workload.jobs)} jobs arrives {when} {at}")
    return _at_zero(before), _at_zero(after)


def sample(workload: Workload, amount: float, seed: int = 0) -> Workload:
    """So many jobs, or below 1 that share of them, drawn at random, each at most once.

    Raises:
        WorkloadError: if there are not as many, or none would be left.
    """
    there_are = len(workload.jobs)
    count = round(amount * there_are) if 0 < amount < 1 else amount
    if not (1 <= count <= there_are and count == int(count)):
        raise WorkloadError(
            f"a sample of {amount:g} of {there_are} jobs is impossible; expected 1 to {there_are}, "
            "or a share below 1 that leaves one"
        )
    chosen = streams.rng(seed, Stream.JOB_LIST).choice(there_are, int(count), replace=False)
    return _at_zero([workload.jobs[i] for i in np.sort(chosen).tolist()])


def scale_load(workload: Workload, factor: float) -> Workload:
    """Divide the times between arrivals by a factor: at 2, twice the load.

    What was recorded of starts and finishes belongs to the old load, and is left out.

    Raises:
        WorkloadError: if the factor is not above 0.
    """
    if not 0 < factor < math.inf:
        raise WorkloadError(f"the load cannot be scaled by {factor:g}; expected a number above 0")
    return _at_zero(
        [
            replace(
                job,
                arrival_s=job.arrival_s / factor,
                recorded=job.recorded and _status_only(job.recorded),
            )
            for job in workload.jobs
        ]
    )


def anonymise(workload: Workload) -> Workload:
    """Number jobs and users in order of arrival, and stages parents first; keep everything else."""
    users: dict[str, str] = {}
    stages: dict[int, tuple[Stage, ...]] = {}
    jobs = []
    for number, job in enumerate(workload.jobs, start=1):
        key = id(job.stages)
        if key not in stages:
            stages[key] = _numbered(job.stages)
        user = None if job.user is None else users.setdefault(job.user, f"u{len(users) + 1}")
        jobs.append(replace(job, id=str(number), stages=stages[key], user=user))
    return _at_zero(jobs)


def _numbered(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    order = topological_order(stages)
    names = {stages[i].id: str(number) for number, i in enumerate(order)}
    return tuple(
        replace(
            stages[i],
            id=names[stages[i].id],
            parents=tuple(names[parent] for parent in stages[i].parents),
        )
        for i in order
    )


def _status_only(recorded: Recorded) -> Recorded | None:
    return None if recorded.status is None else Recorded(status=recorded.status)


def _at_zero(jobs: Iterable[Job]) -> Workload:
    """A workload of jobs sorted by arrival, its clock moved so that the first arrives at 0."""
    jobs = tuple(jobs)
    first_s = jobs[0].arrival_s if jobs else 0.0
    if first_s == 0.0:
        return Workload(jobs)
    return Workload(tuple(_earlier(job, first_s) for job in jobs))


def _earlier(job: Job, seconds: float) -> Job:
    recorded = job.recorded
    if recorded is not None:
        start_s, finish_s = recorded.start_s, recorded.finish_s
        # A log may say that a job started before it arrived: that can be told down to 0 only.
        recorded = replace(
            recorded,
            start_s=None if start_s is None or start_s < seconds else start_s - seconds,
            finish_s=None if finish_s is None or finish_s < seconds else finish_s - seconds,
        )
    return replace(job, arrival_s=job.arrival_s - seconds, recorded=recorded)
