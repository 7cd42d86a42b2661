"""All that people ask of one schedule, in one record.

Source of the definitions: docs/metrics.md.
"""

import msgspec
import numpy as np

from ganger.errors import SimulationError
from ganger.evaluation import metrics
from ganger.simulator.simulate import Result
from ganger.workload.model import Job, Workload

NAMED = 10
"""How many unfinished jobs are named."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule. A job that did not finish counts as if it had at the end of the horizon."""

    submitted: int
    """finished + rejected + unfinished."""
    finished: int
    killed: int
    """Of these, those that were stopped at the run time they asked for."""
    rejected: int
    """Jobs that could never run, and are in no other figure."""
    unfinished: int
    unfinished_jobs: tuple[str, ...]
    """Ids of the first ones."""
    mean_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    mean_slowdown: float | None
    """Turnaround / run time; None where a job waited and then took no time at all."""
    mean_bounded_slowdown: float
    """Likewise, run times below 10 s counting as 10 s; at least 1."""
    mean_per_processor_slowdown: float
    """Likewise, divided by the executors of the job's largest gang; at least 1."""
    makespan_s: float
    """Last finish - first arrival."""
    horizon_s: float
    """What utilisation and queue are averaged over: first arrival to last finish, or to the last
    event where jobs are unfinished."""
    utilisation: float
    executor_hours: float
    """What all tasks took."""
    mean_queue: float
    """Jobs that had not started, averaged over the horizon."""
    max_queue: int
    users: int
    """Who had jobs; figures by user are None where nobody is named."""
    jain_index: float | None
    """Of the users' mean bounded slowdowns: 1 is equal."""
    worst_user: str | None
    worst_user_slowdown: float | None


def report(workload: Workload, result: Result) -> Report:
    """Measure what a simulation or a replay gave.

    Args:
        workload: the jobs of the result, in its order.
    """
    if len(workload.jobs) != len(result.arrival_s):
        raise SimulationError(
            f"the result is of {len(result.arrival_s)} jobs, the workload has "
            f"{len(workload.jobs)}; expected the jobs that were run"
        )
    arrival_s, finish_s = result.arrival_s, result.finish_s
    begin_s = float(arrival_s.min())
    done = np.isfinite(finish_s)
    end_s = float(finish_s[done].max(initial=begin_s))
    if not done.all():
        end_s = max(end_s, result.end_s)
    horizon_s = end_s - begin_s
    ended_s = np.where(done, finish_s, end_s)
    started_s = np.where(np.isfinite(result.first_start_s), result.first_start_s, end_s)
    jct_s = metrics.jct_s(arrival_s, ended_s)
    wait_s = metrics.wait_s(arrival_s, started_s)
    slowdown = float(metrics.slowdown(arrival_s, started_s, ended_s).mean())
    bounded = metrics.bounded_slowdown(arrival_s, started_s, ended_s)
    processors = [largest_gang(job) for job in workload.jobs]
    per_processor = metrics.bounded_slowdown(arrival_s, started_s, ended_s, processors=processors)
    queue = metrics.queue_length(arrival_s, result.first_start_s)
    by_user = metrics.user_means([job.user for job in workload.jobs], bounded)
    worst = max(by_user, key=by_user.__getitem__, default=None)
    p50, p95, p99 = np.percentile(jct_s, [50, 95, 99]).tolist()
    return Report(
        submitted=result.submitted,
        finished=result.finished,
        killed=result.killed,
        rejected=result.rejected,
        unfinished=result.unfinished,
        unfinished_jobs=tuple(workload.jobs[j].id for j in np.flatnonzero(~done)[:NAMED]),
        mean_jct_s=float(jct_s.mean()),
        p50_jct_s=p50,
        p95_jct_s=p95,
        p99_jct_s=p99,
        mean_wait_s=float(wait_s.mean()),
        p95_wait_s=float(np.percentile(wait_s, 95)),
        max_wait_s=float(wait_s.max()),
        mean_slowdown=slowdown if np.isfinite(slowdown) else None,
        mean_bounded_slowdown=float(bounded.mean()),
        mean_per_processor_slowdown=float(per_processor.mean()),
        makespan_s=metrics.makespan_s(arrival_s, ended_s),
        horizon_s=horizon_s,
        utilisation=metrics.utilisation(result.busy_s, result.executors, horizon_s),
        executor_hours=result.busy_s / 3600.0,
        mean_queue=queue.mean(begin_s, end_s),
        max_queue=queue.max(),
        users=len(by_user),
        jain_index=metrics.jain_index(list(by_user.values())) if by_user else None,
        worst_user=None if worst is None else str(worst),
        worst_user_slowdown=None if worst is None else by_user[worst],
    )


def largest_gang(job: Job) -> int:
    """Executors that the job must have at once; 1 without gangs."""
    return max((stage.task_count for stage in job.stages if stage.gang), default=1)
