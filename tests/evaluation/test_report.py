import math

import msgspec
import numpy as np
import pytest
import strategies
from hypothesis import given

from ganger.errors import SimulationError
from ganger.evaluation import Report, report
from ganger.evaluation.report import largest_gang
from ganger.schedulers import Fifo
from ganger.simulator.simulate import Cluster, Result, simulate
from ganger.workload import Job, Pool, Stage, Workload


def job(name, arrival_s, user=None, processors=1, run_s=1.0):
    stage = Stage(id="0", task_count=processors, durations=Pool((run_s,)), gang=processors > 1)
    return Job(id=name, arrival_s=arrival_s, stages=(stage,), user=user)


def result(workload, start_s, finish_s, *, busy_s=0.0, executors=4, end_s=0.0):
    return Result(
        arrival_s=np.array([one.arrival_s for one in workload.jobs]),
        first_start_s=np.array(start_s, float),
        finish_s=np.array(finish_s, float),
        executors=executors,
        events=0,
        decisions=0,
        busy_s=busy_s,
        end_s=end_s,
    )


# ann: waits 5 s, runs 20 s on 2 executors; starts at once and runs 2 s on 1. bob: waits 18 s, runs
# 2 s on 4. carl's runs for 10 s from 30 on. Busy: 20 x 2 + 2 + 2 x 4 + 10 = 60 executor-seconds.
JOBS = Workload(
    (
        job("a", 0.0, "ann", processors=2, run_s=20.0),
        job("b", 10.0, "ann", run_s=2.0),
        job("c", 10.0, "bob", processors=4, run_s=2.0),
        job("d", 30.0, "carl", run_s=10.0),
    )
)
START, FINISH = [5.0, 10.0, 28.0, 30.0], [25.0, 12.0, 30.0, 40.0]


def test_a_report_of_four_jobs_is_what_one_counts_by_hand():
    # Turnarounds: 25, 2, 20, 10. Waits: 5, 0, 18, 0. Bounded slowdowns: 25/20, 2/10 -> 1, 20/10,
    # 10/10; per processor: 25/40 -> 1, 1, 20/40 -> 1, 1. Users: ann (1.25 + 1)/2, bob 2, carl 1.
    # In the queue: a from 0 to 5 and c from 10 to 28, 23 of 40 s.
    users = np.array([1.125, 2.0, 1.0])
    assert msgspec.to_builtins(report(JOBS, result(JOBS, START, FINISH, busy_s=60.0))) == {
        "submitted": 4,
        "finished": 4,
        "killed": 0,
        "rejected": 0,
        "unfinished": 0,
        "unfinished_jobs": (),
        "mean_jct_s": 57 / 4,
        "p50_jct_s": 15.0,
        "p95_jct_s": pytest.approx(20 + 0.85 * 5),
        "p99_jct_s": pytest.approx(20 + 0.97 * 5),
        "mean_wait_s": 23 / 4,
        "p95_wait_s": pytest.approx(5 + 0.85 * 13),
        "max_wait_s": 18.0,
        "mean_slowdown": (25 / 20 + 1 + 10 + 1) / 4,
        "mean_bounded_slowdown": (1.25 + 1 + 2 + 1) / 4,
        "mean_per_processor_slowdown": 1.0,
        "makespan_s": 40.0,
        "horizon_s": 40.0,
        "utilisation": 60 / (4 * 40),
        "executor_hours": 60 / 3600,
        "mean_queue": pytest.approx(23 / 40),
        "max_queue": 1,
        "users": 3,
        "jain_index": pytest.approx(users.sum() ** 2 / (3 * (users**2).sum())),
        "worst_user": "bob",
        "worst_user_slowdown": 2.0,
    }


def test_a_long_wait_of_a_wide_job_counts_per_processor():
    workload = Workload((job("a", 0.0, processors=2, run_s=10.0),))
    one = report(workload, result(workload, [90.0], [100.0]))
    assert (one.mean_bounded_slowdown, one.mean_per_processor_slowdown) == (10.0, 5.0)


def test_an_unfinished_job_counts_up_to_the_end_and_is_named():
    # "c" has started and not ended, "d" has not even started, when all stops at 100 s.
    start, finish = [5.0, 10.0, 28.0, math.nan], [25.0, 12.0, math.nan, math.nan]
    one = report(JOBS, result(JOBS, start, finish, end_s=100.0))
    assert (one.submitted, one.finished, one.unfinished) == (4, 2, 2)
    assert one.unfinished_jobs == ("c", "d")
    assert one.mean_jct_s == (25 + 2 + 90 + 70) / 4
    assert one.mean_wait_s == (5 + 0 + 18 + 70) / 4
    assert (one.horizon_s, one.makespan_s) == (100.0, 100.0)
    assert one.mean_queue == pytest.approx((5 + 18 + 70) / 100)
    assert msgspec.json.decode(msgspec.json.encode(one)) is not None


def test_a_job_of_no_length_that_waited_has_no_finite_slowdown():
    workload = Workload((job("a", 0.0, run_s=0.0),))
    one = report(workload, result(workload, [7.0], [7.0]))
    assert (one.mean_slowdown, one.mean_bounded_slowdown) == (None, 1.0)


def test_rejected_jobs_are_counted_and_in_no_other_figure():
    cluster = Cluster(executors=2, move_delay_s=0.0)
    run = simulate(cluster, JOBS, Fifo(), reject_unfit=True)  # "c" needs 4
    fitting = Workload(tuple(one for one in JOBS.jobs if one.id != "c"))
    one = report(fitting, run)
    assert (one.submitted, one.finished, one.rejected, one.unfinished) == (4, 3, 1, 0)
    # On two executors, "b" waits for "a" from 10 to 20.
    assert one.mean_wait_s == pytest.approx(10 / 3)


def test_without_users_there_is_no_fairness():
    workload = Workload((job("a", 0.0), job("b", 0.0)))
    one = report(workload, result(workload, [0.0, 1.0], [1.0, 2.0]))
    assert (one.users, one.jain_index, one.worst_user, one.worst_user_slowdown) == (
        0,
        None,
        None,
        None,
    )


def test_the_result_must_be_of_these_jobs():
    with pytest.raises(SimulationError, match="the result is of 4 jobs, the workload has 1"):
        report(Workload(JOBS.jobs[:1]), result(JOBS, START, FINISH))


def test_a_job_needs_at_once_what_its_largest_gang_needs():
    wide = Job(
        id="x",
        arrival_s=0.0,
        stages=(
            Stage(id="0", task_count=3, durations=Pool((1.0,)), gang=True),
            Stage(id="1", task_count=5, durations=Pool((1.0,)), gang=True),
            Stage(id="2", task_count=90, durations=Pool((1.0,))),
        ),
    )
    assert largest_gang(wide) == 5
    assert largest_gang(job("y", 0.0)) == 1


@given(strategies.workloads())
def test_a_report_agrees_with_the_simulation(workload):
    run = simulate(Cluster(executors=3), workload, Fifo())
    one = report(workload, run)
    summary = run.summary()
    shared = set(Report.__struct_fields__) & summary.keys()
    assert {"utilisation", "mean_jct_s", "p99_jct_s", "horizon_s", "finished"} <= shared
    for name in shared:
        assert getattr(one, name) == pytest.approx(summary[name]), name
    assert one.mean_wait_s >= 0
    assert one.mean_queue * one.horizon_s == pytest.approx(one.mean_wait_s * one.submitted)
