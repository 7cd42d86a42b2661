"""What really happened: a log's own starts as a schedule, to compare simulated ones with.

A job starts when the log says. If it is one task or one gang, the simulator runs it from there, and
the finish that follows is compared with the log's: that is the simulator's own error. How long any
other job takes depends on the executors that it had, which logs do not say, so the log's finish is
taken.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ganger.errors import WorkloadError
from ganger.evaluation import metrics
from ganger.evaluation.report import largest_gang
from ganger.schedulers import Fifo
from ganger.simulator.simulate import Cluster, Result, simulate
from ganger.workload.model import Job, Workload
from ganger.workload.verdicts import measured_task_s, measured_work_s

TOLERANCE_S = 1e-6
"""Times that differ by less are equal: they are sums of rounded ones."""


class LogError(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay is from its log."""

    jobs: int
    deviating: int
    """Jobs whose finish is another one."""
    worst_job: str | None
    """The one that deviates most."""
    worst_s: float
    mean_jct_s: float
    log_mean_jct_s: float
    mean_wait_s: float
    log_mean_wait_s: float
    utilisation: float
    log_utilisation: float
    """Executors x (finish - start) of jobs that are one task or gang; of others, as replayed."""
    peak_executors: int
    """Most that such jobs had at once: above the cluster's, its size was not the log's."""


def recorded_part(workload: Workload) -> Workload:
    """The jobs whose start and finish are recorded, on the same clock.

    Raises:
        WorkloadError: if there are none.
    """
    jobs = tuple(job for job in workload.jobs if _times_s(job) is not None)
    if not jobs:
        raise WorkloadError(
            "no job has a recorded start and finish; expected a log of what ran when"
        )
    return workload if len(jobs) == len(workload.jobs) else Workload(jobs)


def replay(workload: Workload, *, executors: int) -> Result:
    """The schedule that the log records, as a simulation would give it.

    Args:
        workload: jobs that all have recorded times, as `recorded_part` gives them.
        executors: of the cluster, for its utilisation; that jobs fit it at once is not required.

    Raises:
        WorkloadError: if a job's start or finish is not recorded.
    """
    start_s, finish_s = recorded_s(workload.jobs)
    rigid = [is_rigid(job) for job in workload.jobs]
    finish_s[rigid] = _simulated_finish_s([job for job in workload.jobs if is_rigid(job)])
    return Result(
        arrival_s=np.array([job.arrival_s for job in workload.jobs]),
        first_start_s=start_s,
        finish_s=finish_s,
        executors=executors,
        events=0,
        decisions=0,
        busy_s=math.fsum(measured_work_s(job.stages) for job in workload.jobs),
        end_s=float(finish_s.max()),
    )


def _simulated_finish_s(jobs: list[Job]) -> metrics.Floats:
    """When jobs end in the simulator if each arrives at its recorded start and need not wait."""
    if not jobs:
        return np.empty(0)
    shifted = Workload(tuple(map(_at_its_start, jobs)))
    start_s = np.array([job.arrival_s for job in shifted.jobs])
    runs_s = np.array([measured_task_s(job.stages[0]) for job in shifted.jobs])
    wide = np.array([largest_gang(job) for job in shifted.jobs])
    # What takes no time needs executors all the same, if only for an instant.
    _, instant = np.unique(start_s, return_inverse=True)
    at_once = np.bincount(instant, wide * (runs_s == 0)).max()
    room = metrics.level(start_s, start_s + runs_s, wide).max() + int(at_once)
    cluster = Cluster(executors=max(1, room), move_delay_s=0.0)
    finish_s = simulate(cluster, shifted, Fifo()).finish_s.tolist()
    of_job = dict(zip((job.id for job in shifted.jobs), finish_s, strict=True))
    return np.array([of_job[job.id] for job in jobs])


def _at_its_start(job: Job) -> Job:
    (stage,) = job.stages
    if stage.demand is not None:  # where it ran is settled
        stage = msgspec.structs.replace(stage, demand=None)
    assert job.recorded is not None and job.recorded.start_s is not None
    return Job(id=job.id, arrival_s=job.recorded.start_s, stages=(stage,))


def log_error(workload: Workload, result: Result) -> LogError:
    """Compare a replay, or a simulation of the recorded starts, with the log."""
    start_s, finish_s = recorded_s(workload.jobs)
    arrival_s = result.arrival_s
    difference_s = np.abs(result.finish_s - finish_s)
    worst = int(np.argmax(difference_s))
    rigid = np.array([is_rigid(job) for job in workload.jobs])
    processors = np.array([largest_gang(job) for job in workload.jobs])
    others_s = math.fsum(
        measured_work_s(job.stages)
        for job, one in zip(workload.jobs, rigid, strict=True)
        if not one
    )
    busy_s = math.fsum(((finish_s - start_s) * processors)[rigid]) + others_s
    log_makespan_s = metrics.makespan_s(arrival_s, finish_s)
    return LogError(
        jobs=len(finish_s),
        deviating=int((difference_s > TOLERANCE_S).sum()),
        worst_job=workload.jobs[worst].id if difference_s[worst] > TOLERANCE_S else None,
        worst_s=float(difference_s[worst]),
        mean_jct_s=float((result.finish_s - arrival_s).mean()),
        log_mean_jct_s=float((finish_s - arrival_s).mean()),
        mean_wait_s=float((result.first_start_s - arrival_s).mean()),
        log_mean_wait_s=float((start_s - arrival_s).mean()),
        utilisation=metrics.utilisation(
            result.busy_s, result.executors, metrics.makespan_s(arrival_s, result.finish_s)
        ),
        log_utilisation=metrics.utilisation(busy_s, result.executors, log_makespan_s),
        peak_executors=metrics.level(start_s[rigid], finish_s[rigid], processors[rigid]).max(),
    )


def _times_s(job: Job) -> tuple[float, float] | None:
    recorded = job.recorded
    if recorded is None or recorded.start_s is None or recorded.finish_s is None:
        return None
    return recorded.start_s, recorded.finish_s


def recorded_s(jobs: Sequence[Job]) -> tuple[metrics.Floats, metrics.Floats]:
    """Start and finish of each job.

    Raises:
        WorkloadError: if one of them is not recorded.
    """
    times_s = [_times_s(job) for job in jobs]
    known = [own for own in times_s if own is not None]
    if len(known) < len(jobs):
        raise WorkloadError(
            f"{len(jobs) - len(known):,} of {len(jobs):,} jobs have no recorded start and finish, "
            f"the first is {jobs[times_s.index(None)].id!r}; a replay needs both of all"
        )
    start_s, finish_s = np.array(known).T
    return start_s, finish_s


def is_rigid(job: Job) -> bool:
    """Whether the job is one task or one gang: what it takes does not depend on a scheduler."""
    return len(job.stages) == 1 and (job.stages[0].gang or job.stages[0].task_count == 1)
