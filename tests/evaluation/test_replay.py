import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.evaluation import log_error, recorded_part, replay, report
from ganger.workload import Demand, Job, PerTask, Pool, Recorded, Stage, Workload, load_source


def rigid(name, arrival_s, start_s, run_s, processors=1, finish_s=None):
    """A job of one gang, as a log of batch jobs has it."""
    stage = Stage(
        id="0",
        task_count=processors,
        durations=Pool((run_s,)),
        gang=True,
        # What was asked for is no measurement, and must not be taken for one.
        estimated_task_s=1000.0,
        limit_s=1000.0,
    )
    finish_s = start_s + run_s if finish_s is None else finish_s
    recorded = Recorded(start_s=start_s, finish_s=finish_s, status="1")
    return Job(id=name, arrival_s=arrival_s, stages=(stage,), recorded=recorded)


# On 4 executors: 20 s on 2 from 5 on, 2 s on 1 from 10 on, 2 s on 4 from 28 on: 50 executor-seconds
# in 30 s.
LOG = Workload(
    (
        rigid("a", 0.0, 5.0, 20.0, processors=2),
        rigid("b", 10.0, 10.0, 2.0),
        rigid("c", 10.0, 28.0, 2.0, processors=4),
    )
)


def test_a_replay_is_what_the_log_says():
    result = replay(LOG, executors=4)
    assert result.first_start_s.tolist() == [5.0, 10.0, 28.0]
    assert result.finish_s.tolist() == [25.0, 12.0, 30.0]
    assert (result.busy_s, result.executors, result.end_s) == (50.0, 4, 30.0)
    figures = report(LOG, result)
    assert figures.mean_wait_s == 23 / 3
    assert figures.mean_jct_s == 47 / 3
    assert figures.utilisation == pytest.approx(50 / (4 * 30))


def test_a_replay_of_a_sound_log_does_not_deviate():
    error = log_error(LOG, replay(LOG, executors=4))
    assert (error.jobs, error.deviating, error.worst_job, error.worst_s) == (3, 0, None, 0.0)
    assert error.mean_jct_s == error.log_mean_jct_s == 47 / 3
    assert error.mean_wait_s == error.log_mean_wait_s == 23 / 3
    assert error.utilisation == error.log_utilisation == pytest.approx(50 / 120)
    # "a" and "b" overlap on 2 + 1; "c" runs alone on 4.
    assert error.peak_executors == 4


def test_a_run_time_that_the_log_contradicts_is_found():
    # The log says 2 s from 10 on, but an end at 15: which is wrong, nobody knows.
    log = Workload((LOG.jobs[0], rigid("b", 10.0, 10.0, 2.0, finish_s=15.0), LOG.jobs[2]))
    error = log_error(log, replay(log, executors=4))
    assert (error.deviating, error.worst_job, error.worst_s) == (1, "b", 3.0)
    assert error.log_mean_jct_s - error.mean_jct_s == pytest.approx(1.0)
    assert error.log_utilisation - error.utilisation == pytest.approx(3 / 120)


def test_a_job_of_many_stages_ends_when_the_log_says():
    stages = (
        Stage(id="0", task_count=3, durations=PerTask((1.0, 2.0, 3.0))),
        Stage(id="1", parents=("0",), task_count=2, durations=Pool((4.0, 6.0))),
    )
    recorded = Recorded(start_s=2.0, finish_s=9.0)
    log = Workload((Job(id="x", arrival_s=1.0, stages=stages, recorded=recorded),))
    result = replay(log, executors=2)
    assert (result.first_start_s[0], result.finish_s[0]) == (2.0, 9.0)
    assert result.busy_s == 1 + 2 + 3 + 2 * 5
    error = log_error(log, result)
    assert (error.deviating, error.peak_executors) == (0, 0)


def test_a_stage_of_several_tasks_is_not_taken_for_a_gang():
    stage = Stage(id="0", task_count=4, durations=Pool((3.0,)))
    recorded = Recorded(start_s=0.0, finish_s=12.0)
    log = Workload((Job(id="x", arrival_s=0.0, stages=(stage,), recorded=recorded),))
    assert replay(log, executors=1).finish_s.tolist() == [12.0]


def test_a_log_that_overlaps_itself_shows_how_many_executors_it_had():
    log = Workload((rigid("a", 0.0, 0.0, 5.0, 3), rigid("b", 0.0, 4.0, 5.0, 3)))
    assert log_error(log, replay(log, executors=4)).peak_executors == 6


def test_jobs_that_never_ran_are_not_part_of_what_happened():
    never = [
        msgspec.structs.replace(LOG.jobs[1], id=f"never {i}", recorded=recorded)
        for i, recorded in enumerate(
            [None, Recorded(), Recorded(start_s=3.0), Recorded(finish_s=3.0, status="CANCELLED")]
        )
    ]
    assert recorded_part(Workload((*never, *LOG.jobs))) == LOG
    assert recorded_part(LOG) is LOG
    with pytest.raises(WorkloadError, match="no job has a recorded start and finish"):
        recorded_part(Workload(tuple(never)))
    with pytest.raises(WorkloadError, match=r"1 of 1 jobs have no recorded start.* 'never 2'"):
        replay(Workload((never[2],)), executors=4)


def test_a_job_that_took_no_time_is_replayed_though_all_executors_are_busy():
    # Two of them at 5 s, together as wide as two more clusters.
    log = Workload(
        (
            rigid("a", 0.0, 0.0, 10.0, processors=4),
            rigid("b", 1.0, 5.0, 0.0, processors=4),
            rigid("c", 1.0, 5.0, 0.0, processors=4),
            rigid("d", 1.0, 5.0, 1.0, processors=1),
        )
    )
    result = replay(log, executors=4)
    assert result.finish_s.tolist() == [10.0, 5.0, 5.0, 6.0]
    assert log_error(log, result).peak_executors == 5


def test_demands_do_not_matter_where_it_is_settled_what_ran_where():
    (job, *_) = LOG.jobs
    stage = msgspec.structs.replace(job.stages[0], demand=Demand(cores=64.0))
    log = Workload((msgspec.structs.replace(job, stages=(stage,)),))
    assert replay(log, executors=4).finish_s.tolist() == [25.0]


_rigid_jobs = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 9), st.integers(1, 4)),
    min_size=1,
    max_size=10,
)


@given(_rigid_jobs)
def test_waits_turnarounds_and_utilisation_are_those_of_the_log(rows):
    log = Workload(
        tuple(
            rigid(str(i), float(at), float(at + wait), float(run_s), processors)
            for i, (at, wait, run_s, processors) in enumerate(rows)
        )
    )
    result = replay(log, executors=4)
    figures = report(log, result)
    count = len(rows)
    assert figures.mean_wait_s == pytest.approx(sum(wait for _, wait, *_ in rows) / count)
    assert figures.mean_jct_s == pytest.approx(sum(w + r for _, w, r, _ in rows) / count)
    horizon_s = max(a + w + r for a, w, r, _ in rows) - min(a for a, *_ in rows)
    busy_s = math.fsum(r * p for _, _, r, p in rows)
    expected = busy_s / (4 * horizon_s) if horizon_s else 0.0
    assert figures.utilisation == pytest.approx(expected)
    assert log_error(log, result).deviating == 0


@pytest.mark.parametrize("name", ["KTH-SP2-1996.swf.gz", "SDSC-SP2_5K_sample.swf"])
def test_the_simulator_ends_real_jobs_when_their_log_does(shared_dir, name):
    path = shared_dir / "data" / "swf" / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    log = recorded_part(load_source(str(path)).workload())
    assert len(log.jobs) > 4000
    result = replay(log, executors=128)
    error = log_error(log, result)
    assert (error.jobs, error.deviating) == (len(log.jobs), 0)
    assert error.mean_jct_s == pytest.approx(error.log_mean_jct_s, rel=1e-12)
    assert error.mean_wait_s == pytest.approx(error.log_mean_wait_s, rel=1e-12)
    assert error.utilisation == pytest.approx(error.log_utilisation, rel=1e-12)
