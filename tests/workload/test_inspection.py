import json

import msgspec
import pytest
import strategies
from hypothesis import given

from ganger.errors import WorkloadError
from ganger.workload import FileSource, Job, Pool, Recorded, Stage, SyntheticSource, Workload
from ganger.workload.inspection import inspect
from ganger.workload.readers.findings import Findings


def stage(id, tasks=1, seconds=1.0, parents=(), **more):
    return Stage(id=id, task_count=tasks, durations=Pool((seconds,)), parents=parents, **more)


def source(*jobs, **findings):
    return FileSource("log", Workload(jobs), Findings(**findings))


def test_counts_shape_and_work_of_a_dag():
    # a -> b, c -> d: 2 tasks of 3 s, 4 of 1 s, 1 of 5 s, 1 of 2 s.
    dag = (
        stage("a", 2, 3.0),
        stage("b", 4, 1.0, ("a",)),
        stage("c", 1, 5.0, ("a",)),
        stage("d", 1, 2.0, ("b", "c")),
    )
    seen = inspect(
        source(Job(id="x", arrival_s=0, stages=dag), Job(id="y", arrival_s=17, stages=dag))
    )
    assert (seen.jobs, seen.distinct_jobs, seen.stages, seen.tasks) == (2, 1, 8, 16)
    assert seen.work_s == 2 * (6 + 4 + 5 + 2)
    assert (seen.shape.depth.most, seen.shape.width.most, seen.shape.stages.mean) == (3, 2, 4)
    assert seen.shape.serial_share == pytest.approx((3 + 5 + 2) / 17)
    assert seen.sizes.median == 8
    assert seen.task_s.count == 8
    assert (seen.limit_s, seen.wait_s, seen.executors, seen.load) == (None, None, None, None)
    assert seen.arrivals.span_s == 17
    assert inspect(source(*inspectable()), 2).load == pytest.approx(80 / (17 * 2))


def inspectable():
    gang = (stage("0", 4, 10.0, gang=True, limit_s=30.0),)
    return (
        Job(
            id="1", arrival_s=0, stages=gang, user="ann", recorded=Recorded(start_s=2, finish_s=12)
        ),
        Job(id="2", arrival_s=17, stages=gang, user="bob", recorded=Recorded(status="5")),
    )


def test_users_limits_waits_and_the_log_s_own_cluster():
    seen = inspect(source(*inspectable(), executors=8, rows=3, files=1, format="F", version="2"))
    assert (seen.users, seen.busiest_user, seen.busiest_user_share) == (2, "bob", 0.5)
    assert (seen.limit_s.median, seen.limit_s.count) == (30.0, 2)
    assert (seen.wait_s.most, seen.wait_s.count) == (2.0, 1)
    assert (seen.executors, seen.executors_from) == (8, "log")
    assert seen.load == pytest.approx(80 / (17 * 8))
    assert seen.shape.jobs_with_gangs == 2
    assert (seen.rows, seen.files, seen.format, seen.version) == (3, 1, "F", "2")
    assert inspect(source(*inspectable()), 3).verdicts[0].kind == "never_fits"


def test_hours_and_weekdays_are_those_of_the_cluster_s_own_clock():
    # 2024-03-31 00:30 UTC is 01:30 in Stockholm, half an hour before its clocks go forward.
    jobs = [Job(id=str(i), arrival_s=3600.0 * i, stages=(stage("0"),)) for i in range(2)]
    seen = inspect(source(*jobs, epoch_s=1711845000.0, timezone="Europe/Stockholm"))
    assert [hour for hour, count in enumerate(seen.arrivals.by_hour) if count] == [1, 3]
    assert seen.arrivals.by_weekday == (0, 0, 0, 0, 0, 0, 2)
    assert seen.arrivals.first == "2024-03-31T01:30:00+01:00"
    assert seen.arrivals.last == "2024-03-31T03:30:00+02:00"
    seen = inspect(source(*jobs, epoch_s=1711845000.0, timezone="-08:00"))
    assert [hour for hour, count in enumerate(seen.arrivals.by_hour) if count] == [16, 17]
    assert seen.arrivals.by_weekday[5] == 2
    seen = inspect(source(*jobs))
    assert seen.arrivals.by_hour[:2] == (1, 1)
    assert seen.arrivals.by_weekday is None
    assert inspect(source(*jobs, epoch_s=1e15)).arrivals.first is None


def test_what_was_found_is_told_with_its_places():
    findings = Findings()
    findings.add("dropped", "bad", "f:1", count=2)
    findings.notes.append("no end")
    seen = inspect(FileSource("log", Workload(inspectable()), findings))
    assert [(f.action, f.reason, f.count, f.places) for f in seen.findings] == [
        ("dropped", "bad", 2, ("f:1",))
    ]
    assert seen.notes == ("no end",)


def test_a_source_without_arrivals_shows_its_jobs():
    seen = inspect(SyntheticSource(), 50)
    assert (seen.jobs, seen.arrivals.span_s, seen.load) == (512, 0.0, None)


def test_nothing_cannot_be_inspected():
    with pytest.raises(WorkloadError, match="there are no jobs"):
        inspect(source())


@given(strategies.workloads())
def test_any_workload_can_be_inspected_and_told_as_json(workload):
    seen = inspect(FileSource("any", workload), 3)
    told = json.dumps(msgspec.to_builtins(seen), allow_nan=False)
    assert json.loads(told)["jobs"] == len(workload.jobs)
    assert sum(seen.arrivals.by_hour) == len(workload.jobs)
    for spread in (seen.sizes, seen.job_work_s, seen.task_s, seen.shape.stages):
        assert spread.least <= spread.median <= spread.p90 <= spread.p99 <= spread.most
        assert sum(spread.histogram) == spread.count
    assert 0 <= seen.shape.serial_share <= 1
