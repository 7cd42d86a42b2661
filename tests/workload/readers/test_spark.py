"""How the events of a Spark log become jobs."""

import tracemalloc

import pytest
from spark_logs import (
    END,
    completed,
    event,
    executor,
    job,
    job_end,
    removed,
    sql_end,
    sql_start,
    stage,
    start,
    submitted,
    task,
    task_start,
    two_stages,
    write,
)

from ganger.errors import WorkloadError
from ganger.workload import Pool, Recorded, Wave, Waves, Workload
from ganger.workload.readers import spark
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.spark.events import Requested, ResourceProfile
from ganger.workload.readers.spark.executors import Executor, Slots, most_at_once, slots_of


@pytest.fixture
def read(tmp_path):
    """A function that reads a log of some events: its jobs, and what was found."""

    def read(*events, **options):
        findings = Findings()
        jobs = spark.read([write(tmp_path / "log", events)], findings, **options)
        return list(Workload(tuple(jobs)).jobs), findings

    return read


def found(findings):
    """What was altered, and how often."""
    return {
        (action, reason): each.count
        for (action, reason), each in findings.found.items()
        if action != "noted"
    }


def noted(findings):
    return {reason: each.count for (a, reason), each in findings.found.items() if a == "noted"}


def places(findings, action, reason):
    return [place.rpartition("/")[2] for place in findings.found[action, reason].places]


def level(executors=1, fresh=(), first=(), rest=()):
    return Waves(levels=(Wave(executors=executors, fresh_s=fresh, first_s=first, rest_s=rest),))


def one_task(number, stage_id=None, launch=0, finish=1_000, at=0):
    """A whole job of one task."""
    info = stage(number if stage_id is None else stage_id)
    return [
        job(number, info, at=at),
        submitted(info, at),
        task(number, info["Stage ID"], launch, finish, index=0),
        job_end(number, finish),
    ]


def test_a_job_has_its_stages_edges_durations_and_what_was_recorded(read):
    jobs, findings = read(*two_stages(at=5_000))
    (only,) = jobs
    assert (only.id, only.arrival_s, only.user) == ("app-1/job0", 0.0, "ada")
    assert only.recorded == Recorded(start_s=0.1, finish_s=4.2, status="JobSucceeded")
    first, second = only.stages
    assert (first.id, first.parents, first.task_count) == ("0", (), 2)
    assert first.durations == level(2, fresh=(2.0, 3.0))  # both cores are new
    assert (second.id, second.parents, second.task_count) == ("1", ("0",), 1)
    # The core that was freed last, 50 ms before, did another stage: that is a first task.
    assert second.durations == level(2, first=(1.0,))
    assert found(findings) == {}
    assert (findings.version, findings.files, findings.rows) == ("3.5.0", 1, 11)
    assert findings.notes == ["app-1: task slots: 2 at 0.0 s"]
    assert (findings.executors, findings.epoch_s) == (2, 5.0)


def test_what_a_slot_did_before_decides_where_a_duration_goes():
    slots = Slots(1)
    assert slots.run(0, 1_000, job=0, stage=0) == "fresh"  # nothing
    assert slots.run(1_010, 2_000, job=0, stage=0) == "rest"  # this stage
    assert slots.run(9_000, 9_500, job=0, stage=0) == "rest"  # also if it waited
    assert slots.run(9_600, 9_700, job=0, stage=1) == "first"  # another stage of the job
    assert slots.run(9_801, 9_900, job=0, stage=2) == "fresh"  # that too, but it idled for 101 ms
    assert slots.run(9_900, 9_950, job=1, stage=2) == "fresh"  # another job


def test_a_task_runs_on_the_slot_that_was_freed_last():
    slots = Slots(2)
    slots.run(0, 100, job=0, stage=0)
    slots.run(0, 900, job=0, stage=1)
    assert slots.run(905, 1_000, job=0, stage=1) == "rest"
    # None is free, as the next task may be reported before the end of the one before it.
    slots.run(950, 2_000, job=0, stage=1)
    assert slots.run(999, 3_000, job=0, stage=1) == "rest"
    assert len(slots.used) == 2


def test_a_level_is_the_slots_that_the_application_had_when_the_tasks_started(read):
    info = stage(0, 4)
    jobs, findings = read(
        *start(),
        executor("1", 2, at=0),
        job(0, info),
        submitted(info),
        task(0, 0, 0, 900),
        executor("2", 4, at=1_000),
        task(1, 0, 1_000, 2_000),
        task(2, 0, 1_000, 2_000, on="2"),
        removed("1", 2_500),
        task(3, 0, 3_000, 4_000, on="2"),
        job_end(0),
        END,
    )
    (wave,) = jobs[0].stages[0].durations.levels
    assert wave.executors == 4  # the mean of 2, 6, 6 and 4, rounded to even
    assert findings.notes == ["app-1: task slots: 2 at 0.0 s, 6 at 1.0 s, 4 at 2.5 s"]
    assert findings.executors == 6


def test_an_executor_that_is_added_again_does_not_count_twice(read):
    jobs, findings = read(*start(), executor("1", 2), executor("1", 4, at=500), *one_task(0), END)
    assert jobs[0].stages[0].durations.levels[0].executors == 2  # as the task was launched
    assert findings.executors == 4


def test_slots_are_what_the_resource_profile_and_the_settings_leave_room_for(read):
    eight = Executor(cores=8, profile=0, added_ms=0)
    two_cpus = ResourceProfile(id=0, task={"cpus": Requested(amount=2.0)})
    gpu = {"gpu": Requested(amount=1.0)}
    quarter = ResourceProfile(
        id=0, executor=gpu, task={"cpus": Requested(amount=1.0), "gpu": Requested(amount=0.25)}
    )
    assert slots_of(eight, None, task_cpus=1) == 8
    assert slots_of(eight, None, task_cpus=3) == 2
    assert slots_of(eight, two_cpus, task_cpus=1) == 4
    assert slots_of(eight, quarter, task_cpus=1) == 4  # four tasks share the GPU
    settings = event("EnvironmentUpdate", **{"Spark Properties": {"spark.task.cpus": "4"}})
    jobs, _ = read(*start(), settings, executor("1", 8), *one_task(0), END)
    assert jobs[0].stages[0].durations.levels[0].executors == 2


def test_an_executor_that_was_never_added_has_the_slots_that_it_was_seen_to_use(read):
    assert most_at_once([(0, 5), (5, 9), (4, 6), (7, 7)]) == 2
    info = stage(0, 3)
    jobs, findings = read(
        *start(),
        job(0, info),
        submitted(info),
        task(0, 0, 0, 1_000, on="driver"),
        task(1, 0, 0, 2_000, on="driver"),
        task(2, 0, 1_000, 3_000, on="driver"),
        job_end(0),
        END,
    )
    assert jobs[0].stages[0].durations == level(2, fresh=(1.0, 2.0), rest=(2.0,))
    reason = "cores of an executor: as many as it ran tasks at once"
    assert found(findings) == {("guessed", reason): 1}


def test_skipped_stages_are_left_out_and_their_edges_bridged(read):
    ran = [stage(0), stage(3, parents=[2]), stage(4, parents=[1, 3])]
    skipped = [stage(1), stage(2, parents=[0])]
    jobs, findings = read(
        *start(),
        executor("1"),
        job(0, *ran, *skipped),
        *(
            each
            for i, info in enumerate(ran)
            for each in (submitted(info), task(i, info["Stage ID"], i, i + 1, index=0))
        ),
        job_end(0),
        END,
    )
    edges = {stage.id: stage.parents for stage in jobs[0].stages}
    assert edges == {"0": (), "3": ("0",), "4": ("3",)}
    assert found(findings) == {}
    assert noted(findings) == {"stage that Spark skipped: its edges are bridged": 2}


def test_a_skipped_stage_stands_for_the_one_that_made_its_data(read):
    """As in adaptive execution: later jobs list the stages of earlier ones under new numbers."""
    scan, again, total = stage(0, rdd=7), stage(1, rdd=7), stage(2, parents=[1])
    events = [
        *start(),
        executor("1"),
        sql_start(5),
        job(0, scan, at=10, sql=5),
        submitted(scan),
        task(0, 0, 20, 30, index=0),
        job_end(0, 40),
        job(1, again, total, at=50, sql=5),
        submitted(total),
        task(1, 2, 60, 70, index=0),
        job_end(1, 80),
        sql_end(5, 90),
        END,
    ]
    (query,), findings = read(*events, unit="sql")
    assert query.id == "app-1/sql5"
    assert {stage.id: stage.parents for stage in query.stages} == {"0": (), "2": ("0",)}
    assert query.recorded == Recorded(start_s=0.02, finish_s=0.09, status="JobSucceeded")
    assert found(findings) == {}
    jobs, _ = read(*events)
    assert [(job.id, job.arrival_s) for job in jobs] == [("app-1/job0", 0.0), ("app-1/job1", 0.04)]
    assert [stage.parents for job in jobs for stage in job.stages] == [(), ()]


def test_an_execution_holds_the_jobs_of_those_inside_it_and_other_jobs_stand_alone(read):
    def whole(number, at, **sql):
        info = stage(number)
        _, *rest = one_task(number, launch=at + 1, finish=at + 5, at=at)
        return [job(number, info, at=at, **sql), *rest]

    jobs, findings = read(
        *start(),
        executor("1"),
        sql_start(0),
        sql_start(1),
        *whole(0, 10, sql=1, root=0),
        *whole(1, 20, sql=0),
        sql_end(1, 30),
        sql_end(0, 30),
        *whole(2, 40),
        END,
        unit="sql",
    )
    assert [job.id for job in jobs] == ["app-1/sql0", "app-1/job2"]
    # Job 1 came after job 0 had ended, and nothing else says what it waited for.
    assert [stage.parents for stage in jobs[0].stages] == [(), ("0",)]
    reason = "job of a SQL execution follows those that had ended when it came"
    assert found(findings) == {("guessed", reason): 1}
    assert noted(findings) == {"job or SQL execution without a task to run": 1}


def test_jobs_of_an_execution_that_ran_side_by_side_do_not_follow_each_other(read):
    infos = [stage(0), stage(1)]
    jobs, findings = read(
        *start(),
        executor("1", 2),
        sql_start(0),
        job(0, infos[0], sql=0),
        job(1, infos[1], at=5, sql=0),
        *map(submitted, infos),
        task(0, 0, 10, 20, index=0),
        task(1, 1, 10, 20, index=0),
        job_end(0, 30),
        job_end(1, 30),
        sql_end(0, 40),
        END,
        unit="sql",
    )
    assert [stage.parents for stage in jobs[0].stages] == [(), ()]
    assert found(findings) == {}


def test_of_thousands_of_jobs_of_an_execution_each_follows_a_few(read):
    """Two waves of jobs side by side: every one of the second had to wait for all of the first."""
    count = 2_000
    events = [*start(), executor("1", count), sql_start(0)]
    for first, at in ((0, 0), (count, 1_000)):
        numbers = range(first, first + count)
        infos = [stage(number) for number in numbers]
        events += [job(n, info, at=at, sql=0) for n, info in zip(numbers, infos, strict=True)]
        events += [submitted(info, at) for info in infos]
        events += [task(number, number, at + 1, at + 2, index=0) for number in numbers]
        events += [job_end(number, at + 3) for number in numbers]
    (query,), _ = read(*events, sql_end(0), END, unit="sql")
    assert len(query.stages) == 2 * count
    assert {len(stage.parents) for stage in query.stages[:count]} == {0}
    assert {len(stage.parents) for stage in query.stages[count:]} == {64}


def test_memory_does_not_grow_with_the_stages_that_jobs_skip(tmp_path):
    """An iterative computation: every job lists, and skips, all stages so far under new numbers."""
    events = [*start(), executor("1")]
    number = 0
    for iteration in range(200):
        infos = [stage(number + i, parents=[number + i - 1] if i else []) for i in range(iteration)]
        last = stage(number + iteration, parents=[number + iteration - 1] if iteration else [])
        at = iteration * 100
        events += [job(iteration, *infos, last, at=at), submitted(last, at)]
        events += [task(iteration, number + iteration, at, at + 50, index=0)]
        events += [job_end(iteration, at + 60)]
        number += iteration + 1
    path = write(tmp_path / "log", [*events, END])
    findings = Findings()
    tracemalloc.start()
    jobs = spark.read([path], findings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(job.stages) for job in jobs] == [1] * 200
    assert noted(findings) == {"stage that Spark skipped: its edges are bridged": 199 * 200 // 2}
    assert path.stat().st_size > 2.5e6
    assert peak < 4e6, peak  # of which the buffer of the file is most; 20,000 stages take 16e6


def test_failed_killed_and_speculative_attempts_are_counted_and_only_successes_kept(read):
    info = stage(0, 2)
    jobs, findings = read(
        *start(),
        executor("1", 4),
        job(0, info),
        submitted(info),
        task(0, 0, 0, 500, index=0, reason="ExceptionFailure"),
        task(1, 0, 0, 4_000, index=1),
        task(2, 0, 0, 4_100, index=1, reason="TaskKilled"),  # a speculative copy, too late
        task(3, 0, 600, 1_600, index=0),
        task(4, 0, 600, 1_700, index=0),  # another copy, nearly as fast
        job_end(0),
        END,
    )
    durations = jobs[0].stages[0].durations.levels[0]
    # The slot of the attempt that failed went on with the same stage.
    assert (durations.fresh_s, durations.rest_s) == ((4.0,), (1.0,))
    assert found(findings) == {
        ("dropped", "task attempt did not succeed: ExceptionFailure"): 1,
        ("dropped", "task attempt did not succeed: TaskKilled"): 1,
        ("dropped", "task had succeeded before, in another attempt"): 1,
    }
    reason = "task had succeeded before, in another attempt"
    assert places(findings, "dropped", reason) == ["log:10"]


def test_a_task_whose_output_is_lost_with_its_executor_counts_once(read):
    info = stage(0, 1)
    jobs, findings = read(
        *start(),
        executor("1"),
        executor("2"),
        job(0, info),
        submitted(info),
        task(0, 0, 0, 1_000, on="1", index=0),
        task(0, 0, 0, 1_000, on="1", index=0, reason="Resubmitted"),
        removed("1", 1_100),
        task(1, 0, 1_200, 3_200, on="2", index=0),
        job_end(0),
        END,
    )
    assert jobs[0].stages[0].durations == level(2, fresh=(1.0,))
    assert found(findings) == {
        ("dropped", "task succeeded, lost its output with an executor, and ran again"): 1,
        ("dropped", "task had succeeded before, in another attempt"): 1,
    }


@pytest.mark.parametrize("tells_partitions", [True, False])
def test_a_stage_that_is_tried_again_is_one_stage_of_all_its_tasks(read, tells_partitions):
    def attempt(number, index, partition, of, launch, reason="Success"):
        return task(
            number,
            0,
            launch,
            launch + 1_000 * (number + 1),
            index=index,
            attempt=of,
            partition=partition if tells_partitions else None,
            reason=reason,
        )

    whole = stage(0, 3)
    again = stage(0, 2, attempt=1)  # partition 2, and partition 1 whose output was lost
    jobs, findings = read(
        *start(),
        executor("1", 3),
        job(0, whole),
        submitted(whole),
        attempt(0, 0, 0, 0, 0),
        attempt(1, 1, 1, 0, 0),
        attempt(2, 2, 2, 0, 0, "FetchFailed"),
        completed(whole, 3_000),
        submitted(again, 3_100),
        attempt(3, 1, 2, 1, 5_000),
        attempt(4, 0, 1, 1, 5_000),
        job_end(0),
        END,
    )
    (only,) = jobs[0].stages
    assert only.task_count == 3
    assert only.durations.levels[0].rest_s + only.durations.levels[0].fresh_s == (4.0, 1.0, 2.0)
    assert found(findings) == {
        ("dropped", "task attempt did not succeed: FetchFailed"): 1,
        ("dropped", "task had succeeded before, in another attempt"): 1,
    }


def test_a_stage_of_two_jobs_belongs_to_the_one_that_ran_it(read):
    shared, first, second = stage(0), stage(1, parents=[0]), stage(2, parents=[0])
    jobs, findings = read(
        *start(),
        executor("1"),
        job(0, shared, first, at=0),
        job(1, shared, second, at=5),
        submitted(shared),
        task(0, 0, 10, 20, index=0),
        submitted(first),
        task(1, 1, 30, 40, index=0),
        job_end(0, 50),
        submitted(second),
        task(2, 2, 60, 70, index=0),
        job_end(1, 80),
        END,
    )
    assert [[stage.id for stage in job.stages] for job in jobs] == [["0", "1"], ["2"]]
    assert jobs[1].stages[0].parents == ()
    assert found(findings) == {}
    # Lost, and run again for the second job when the first one has ended: then it is that one's.
    again = stage(0, attempt=1)
    jobs, _ = read(
        *start(),
        executor("1"),
        job(0, shared),
        submitted(shared),
        task(0, 0, 10, 20, index=0),
        job_end(0, 50),
        job(1, shared, second, at=60),
        submitted(again),
        task(1, 0, 70, 80, index=0, attempt=1),
        submitted(second),
        task(2, 2, 90, 95, index=0),
        job_end(1, 99),
        END,
    )
    assert [[stage.id for stage in job.stages] for job in jobs] == [["0"], ["0", "2"]]
    assert jobs[1].stages[1].parents == ("0",)


def test_a_barrier_stage_is_a_gang_that_takes_as_long_as_its_longest_task(read):
    info = stage(0, 2, barrier=True)
    jobs, findings = read(
        *start(),
        executor("1", 2),
        job(0, info),
        submitted(info),
        task(0, 0, 0, 1_000),
        task(1, 0, 0, 1_500),
        job_end(0),
        END,
    )
    (only,) = jobs[0].stages
    assert (only.gang, only.task_count, only.durations) == (True, 2, Pool((1.5,)))
    assert noted(findings) == {"barrier stage: a gang as long as its longest task": 1}


def test_of_a_log_without_an_end_what_it_has_is_kept(read):
    infos = [stage(0, 3), stage(1, parents=[0])]
    jobs, findings = read(
        *start(),
        executor("1", 3),
        job(0, *infos),
        submitted(infos[0]),
        task_start(0, 0),
        task_start(1, 0),
        task_start(2, 0),
        task(0, 0, 0, 1_000),
        task(2, 0, 0, 3_000),
    )
    (only,) = jobs[0].stages
    assert (only.task_count, only.durations) == (3, level(3, fresh=(1.0, 3.0)))
    assert jobs[0].recorded == Recorded(start_s=0.0)
    assert found(findings) == {
        ("dropped", "task has not ended when its log ends"): 1,
        ("dropped", "stage that had not started when its log ends"): 1,
        ("dropped", "rest of a job that has not ended when its log ends"): 1,
        ("guessed", "duration of a task that is not in the log: like the others of its stage"): 1,
    }
    assert places(findings, "dropped", "task has not ended when its log ends") == ["log:7"]
    assert noted(findings) == {"log without an end: its application runs, or it was cut": 1}


def test_an_execution_that_may_go_on_has_no_end(read):
    events = [*start(), executor("1"), sql_start(0), job(0, stage(0), sql=0)]
    events += one_task(0)[1:]
    assert read(*events, unit="sql")[0][0].recorded == Recorded(start_s=0.0)
    assert read(*events, END, unit="sql")[0][0].recorded.finish_s == 1.0
    assert read(*events)[0][0].recorded.finish_s == 1.0


def test_a_job_that_failed_keeps_what_it_did(read):
    infos = [stage(0), stage(1, parents=[0])]
    jobs, findings = read(
        *start(),
        executor("1"),
        job(0, *infos),
        submitted(infos[0]),
        task(0, 0, 0, 1_000),
        job_end(0, result="JobFailed"),
        END,
    )
    assert [stage.id for stage in jobs[0].stages] == ["0"]
    assert jobs[0].recorded.status == "JobFailed"
    assert found(findings) == {("dropped", "stage that did not run, of a job that failed"): 1}


def test_stages_and_jobs_whose_task_events_are_gone_are_left_out_and_named(read):
    scan, middle, total = stage(0), stage(1, parents=[0]), stage(2, parents=[1])
    jobs, findings = read(
        *start(),
        executor("1"),
        job(0, scan, middle, total),
        *map(submitted, (scan, middle, total)),
        task(0, 0, 0, 1_000),
        task(1, 2, 1_000, 2_000),
        job_end(0),
        job(1, stage(3)),
        submitted(stage(3)),
        job_end(1),
        END,
    )
    assert [(stage.id, stage.parents) for stage in jobs[0].stages] == [("0", ()), ("2", ("0",))]
    assert found(findings) == {
        ("dropped", "stage of which no duration is in the log"): 2,
        ("dropped", "job of which no duration is in the log"): 1,
    }
    assert places(findings, "dropped", "job of which no duration is in the log") == ["log:11"]


def test_events_of_jobs_that_began_before_the_log_are_counted(read):
    jobs, findings = read(
        *start(),
        executor("1"),
        submitted(stage(7)),
        task(0, 7, 0, 10),
        job_end(3, 20),
        *one_task(4, launch=30, finish=40, at=25),
        END,
    )
    assert [job.id for job in jobs] == ["app-1/job4"]
    assert found(findings) == {
        ("dropped", "stage of no job that the log has started"): 1,
        ("dropped", "task of no stage that the log has started"): 1,
        ("dropped", "job ends whose start is not in the log"): 1,
    }


def test_a_task_that_ends_before_it_starts_takes_the_run_time_of_its_executor(read):
    info = stage(0, 3)
    jobs, findings = read(
        *start(),
        executor("1", 3),
        job(0, info),
        submitted(info),
        task(0, 0, 500, 400, run_ms=70),
        task(1, 0, 500, 400),
        task(2, 0, 500, 500),  # 0 s is a duration
        job_end(0),
        END,
    )
    # The second took no time, so the third, which started then, came after it on its slot.
    assert jobs[0].stages[0].durations == level(3, fresh=(0.07,), rest=(0.0,))
    assert found(findings) == {
        ("repaired", "task ends before it starts: took its executor's run time"): 1,
        ("dropped", "duration of a task that ends before it starts"): 1,
        ("guessed", "duration of a task that is not in the log: like the others of its stage"): 1,
    }


def test_impossible_ends_and_starts_of_jobs_are_left_out(read):
    jobs, findings = read(
        *start(),
        executor("1"),
        *one_task(0, launch=10, finish=20, at=0)[:-1],
        job_end(0, 5),
        *one_task(1, launch=90, finish=120, at=100),
        END,
    )
    assert jobs[0].recorded == Recorded(start_s=0.01, status="JobSucceeded")
    assert jobs[1].recorded == Recorded(finish_s=0.12, status="JobSucceeded")
    assert found(findings) == {
        ("dropped", "end of a job, which is before its start"): 1,
        ("dropped", "start of a job, which is before it was submitted"): 1,
    }


def test_what_logs_before_spark_1_4_do_not_tell_is_guessed(read):
    def old(number):
        return {"Stage ID": number, "Number of Tasks": 1}

    begin = event("JobStart", **{"Job ID": 0, "Stage Infos": [old(0), old(1)], "Stage IDs": [0, 1]})
    end = event("JobEnd", **{"Job ID": 0, "Job Result": {"Result": "JobSucceeded"}})
    jobs, findings = read(
        event("ApplicationStart", **{"App Name": "old", "Timestamp": 0}),
        executor("1"),
        begin,
        submitted(old(0), 1_000),
        task(0, 0, 1_100, 2_000),
        completed(old(0), 2_050, 1_000),
        submitted(old(1), 2_060),
        task(1, 1, 2_070, 3_000),
        completed(old(1), 3_050, 2_060),
        end,
        END,
    )
    (only,) = jobs
    assert (only.id, only.user) == ("log/job0", None)
    assert [stage.parents for stage in only.stages] == [(), ("0",)]
    assert only.recorded == Recorded(start_s=0.1, finish_s=2.05, status="JobSucceeded")
    assert found(findings) == {
        ("guessed", "time a job was submitted: when its first stage was"): 1,
        ("guessed", "time a job ended: when its last stage did"): 1,
        ("guessed", "parents that the log does not tell: the stage before"): 1,
    }


def test_a_job_of_the_oldest_logs_names_its_stages_only(read):
    begin = event("JobStart", **{"Job ID": 0, "Stage IDs": [0, 1]})
    infos = [stage(0), stage(1, parents=[0])]
    jobs, _ = read(
        *start(),
        executor("1"),
        begin,
        submitted(infos[0]),
        task(0, 0, 0, 10, index=0),
        submitted(infos[1]),
        task(1, 1, 20, 30, index=0),
        job_end(0),
        END,
    )
    assert [(stage.id, stage.parents) for stage in jobs[0].stages] == [("0", ()), ("1", ("0",))]


def test_an_edge_to_a_stage_that_is_not_there_or_comes_later_is_dropped(read):
    infos = [stage(0, parents=[1, 99]), stage(1, parents=[0])]
    jobs, findings = read(
        *start(),
        executor("1"),
        job(0, *infos),
        *map(submitted, infos),
        task(0, 0, 0, 10, index=0),
        task(1, 1, 20, 30, index=0),
        job_end(0),
        END,
    )
    assert [stage.parents for stage in jobs[0].stages] == [(), ("0",)]
    assert found(findings) == {("dropped", "parent that is no earlier stage of its job"): 2}


def test_unknown_events_are_ignored_and_damaged_ones_counted(read):
    whole = two_stages()
    vendor = event("com.example.SparkListenerThing", Whatever=[1, {"Job ID": "x"}])
    no_fields = event("TaskEnd", **{"Stage ID": 0})
    jobs, findings = read(*whole[:4], vendor, no_fields, *whole[4:])
    assert [job.id for job in jobs] == ["app-1/job0"]
    reason = "event lacks a field or has an impossible one"
    assert found(findings) == {("dropped", reason): 1}
    assert places(findings, "dropped", reason) == ["log:6"]


def test_a_second_start_or_end_of_a_job_is_not_another_job(read):
    whole = two_stages()
    jobs, findings = read(*whole[:4], whole[3], *whole[4:-1], whole[-2], END)
    assert len(jobs) == 1
    assert found(findings) == {
        ("dropped", "job starts a second time"): 1,
        ("dropped", "job ends a second time"): 1,
    }


def test_an_application_without_a_job_is_no_error(read):
    jobs, findings = read(*start(), END)
    assert jobs == []
    assert noted(findings) == {"application without a job": 1}


def test_a_log_that_ends_before_a_task_of_a_job_is_an_error_that_names_it(read):
    with pytest.raises(WorkloadError, match="log: no task of a job ended in it"):
        read(*start(), job(0, stage(0)))


def test_the_events_may_be_spelled_with_other_spaces_and_order(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(
        write(path, two_stages())
        .read_bytes()
        .replace(b'{"Event":', b'{ "Event" : ')
        .replace(b"\n", b"\r\n\r\n")
    )
    findings = Findings()
    assert len(spark.read([path], findings)) == 1
    assert found(findings) == {}


def test_strict_makes_an_error_of_the_first_finding(tmp_path):
    path = write(tmp_path / "log", [*start(), executor("1"), *one_task(0), job_end(9), END])
    with pytest.raises(WorkloadError, match=r"log:8: job ends whose start is not in the log"):
        spark.read([path], Findings(strict=True))


def test_the_unit_is_job_or_sql(tmp_path):
    with pytest.raises(WorkloadError, match="expected 'job' or 'sql'"):
        spark.read([write(tmp_path / "log", two_stages())], Findings(), unit="stage")
