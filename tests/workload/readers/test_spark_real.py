"""Real Spark logs, of every generation from 1.2 to 4, and what other tools computed from them."""

import csv
import functools
import json
from collections import Counter

import pytest

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.testing import check_reader
from ganger.workload import Pool, Workload
from ganger.workload.readers import spark
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.opening import expand, head, lines

OWN_SHARED = "own_runs/eventlog_v2_app-20261130203711-0010"


@pytest.fixture(scope="module")
def directory(shared_dir):
    directory = shared_dir / "data" / "spark_eventlogs"
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent")
    return directory


@pytest.fixture(scope="module")
def logs(directory):
    """Every log: a file, or the folder of a rolling one."""
    inside = [*directory.iterdir(), *(directory / "own_runs").iterdir()]
    return [log for log in inside if log.name not in ("own_runs", "expected")]


def read(path, unit="job"):
    findings = Findings()
    jobs = spark.read(expand(path), findings, unit=unit)
    Workload(tuple(jobs))
    return jobs, findings


def milliseconds(stage):
    """All durations of a stage."""
    if isinstance(stage.durations, Pool):
        values = list(stage.durations.values_s)
    else:
        (level,) = stage.durations.levels
        values = [*level.fresh_s, *level.first_s, *level.rest_s]
    return [round(1_000 * value) for value in values]


def counts(findings, action):
    return {reason: each.count for (a, reason), each in findings.found.items() if a == action}


def altered(findings):
    return {key: each for key, each in findings.found.items() if key[0] != "noted"}


def test_durations_and_times_are_those_of_the_nvidia_profiling_tool(directory):
    (job,), findings = read(directory / "rapids_join_eventlog.zstd")
    assert altered(findings) == {}
    stages = {stage.id: stage for stage in job.stages}
    with open(directory / "expected" / "rapids_join_eventlog_stagemetricsagg_expectation.csv") as f:
        for row in csv.DictReader(f):
            values = milliseconds(stages[row["id"]])
            assert len(values) == stages[row["id"]].task_count == int(row["numTasks"])
            assert sum(values) == int(row["durationSum"])
            assert (max(values), min(values)) == (int(row["durationMax"]), int(row["durationMin"]))
    with open(directory / "expected" / "rapids_join_eventlog_jobmetricsagg_expectation.csv") as f:
        (row,) = csv.DictReader(f)
    assert sum(stage.task_count for stage in job.stages) == int(row["numTasks"])
    assert job.recorded.finish_s - job.arrival_s == pytest.approx(int(row["duration"]) / 1_000)


def test_jobs_stages_and_durations_are_those_of_sparklens(directory):
    name = "sparklens_local-1532512550423"
    jobs, findings = read(directory / name)
    assert altered(findings) == {}
    with open(directory / "expected" / f"{name}.sparklens.json") as file:
        expected = json.load(file)
    by_number = {job.id.rpartition("job")[2]: job for job in jobs}
    assert by_number.keys() == expected["jobMap"].keys()
    begin = min(job["startTime"] for job in expected["jobMap"].values())
    for number, job in expected["jobMap"].items():
        assert by_number[number].arrival_s == (job["startTime"] - begin) / 1_000
        assert by_number[number].recorded.finish_s == (job["endTime"] - begin) / 1_000
    for number, told in expected["stageMap"].items():
        job = by_number[str(expected["stageIDToJobID"][number])]
        (stage,) = (stage for stage in job.stages if stage.id == number)
        metrics = told["stageMetrics"]["map"]["taskDuration"]
        values = milliseconds(stage)
        assert len(values) == told["stageMetrics"]["count"]
        assert (sum(values), min(values), max(values)) == (
            metrics["value"],
            metrics["min"],
            metrics["max"],
        )


@functools.cache
def tasks_that_succeeded(log):
    """(stage, duration) of each, by the plainest reading there is."""
    found = Counter()
    paths = [path for path in expand(log) if not path.name.startswith("appstatus")]
    for path in paths:
        for _, line in lines(path):
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                if event["Task End Reason"]["Reason"] == "Success":
                    duration = info["Finish Time"] - info["Launch Time"]
                    found[event["Stage ID"], duration] += 1
    return found


@pytest.mark.parametrize("unit", ["job", "sql"])
def test_every_duration_of_every_log_is_there_once(logs, unit):
    assert len(logs) > 30
    for log in logs:
        jobs, findings = read(log, unit)
        kept = Counter(
            (int(stage.id), duration)
            for job in jobs
            for stage in job.stages
            for duration in milliseconds(stage)
        )
        succeeded = tasks_that_succeeded(log)
        if log.name.startswith("tasks_executors_fail"):
            # Jobs whose start is missing, and a stage that lost two executors.
            assert kept <= succeeded
            assert succeeded.total() - kept.total() == 299 + 27
        else:
            assert kept == succeeded, log
            assert set(counts(findings, "dropped")) <= {
                "task attempt did not succeed: ExceptionFailure",
                "task has not ended when its log ends",
                "stage that had not started when its log ends",
                "rest of a job that has not ended when its log ends",
            }, log


def test_what_was_found_in_a_log_of_lost_executors(directory):
    log = directory / "tasks_executors_fail_compressed_eventlog.zstd"
    jobs, findings = read(log)
    assert counts(findings, "dropped") == {
        "stage of no job that the log has started": 5,
        "task of no stage that the log has started": 299,
        "job ends whose start is not in the log": 5,
        "task succeeded, lost its output with an executor, and ran again": 50,
        "task attempt did not succeed: ExecutorLostFailure": 1,
        "task attempt did not succeed: FetchFailed": 2,
        "task had succeeded before, in another attempt": 27,
        "stage that did not run, of a job that failed": 1,
    }
    assert findings.found["dropped", "job ends whose start is not in the log"].places[0] == (
        f"{log}:4761"
    )
    assert Counter(job.recorded.status for job in jobs) == {"JobSucceeded": 74, "JobFailed": 1}
    assert counts(findings, "guessed") == {}
    assert len(read(log, "sql")[0]) == 28


def test_spark_4_jobs_that_ran_together_overlap(directory):
    jobs, findings = read(directory / OWN_SHARED)
    assert (findings.version, findings.executors) == ("4.3.0", 4)
    assert altered(findings) == {}
    assert len(jobs) == 11
    assert [len(job.stages) for job in jobs] == [1, 1] + 9 * [2]
    last = max(stage.durations.levels[0].executors for job in jobs for stage in job.stages)
    assert last == 4
    fair = [job.recorded for job in jobs[5:8]]
    assert max(each.start_s for each in fair) < min(each.finish_s for each in fair)


def test_a_query_planned_as_it_runs_is_one_dag(directory):
    queries, _ = read(directory / "eventlog_4nodes_8cores_dynamic_alloc.zstd", "sql")
    assert len(queries) == 5
    for query in queries:
        scans, join, total = query.stages[:2], query.stages[2], query.stages[3]
        assert [stage.parents for stage in scans] == [(), ()]
        assert join.parents == tuple(stage.id for stage in scans)
        assert total.parents == (join.id,)


def test_logs_of_one_id_and_all_attempts_are_read_together(directory, logs):
    jobs, findings = read(directory)
    assert len({job.id for job in jobs}) == len(jobs) == sum(len(read(log)[0]) for log in logs)
    # What is in the same directory and is no log is left out, and named.
    assert counts(findings, "dropped")["file that holds no Spark events"] == 3
    attempts = [job for job in jobs if job.id.startswith("application_1724877841851_0016")]
    assert {job.id.split("/")[0][-2:] for job in attempts} == {"_1", "_2"}
    assert all(job.arrival_s >= 0.0 for job in jobs)


@pytest.mark.parametrize(
    "name", [OWN_SHARED, "own_runs/app-20261130203147-0004", "eventlog_v2_local-1623876083964"]
)
def test_simulated_again_jobs_take_about_as_long_as_they_did(directory, name):
    jobs, findings = read(directory / name)
    recorded = [job.recorded.finish_s - job.arrival_s for job in jobs]
    cluster = Cluster(executors=findings.executors, move_delay_s=0.0)
    result = simulate(cluster, Workload(tuple(jobs)), parse_scheduler("fair"))
    assert result.finished == len(jobs)
    assert result.mean_jct_s == pytest.approx(sum(recorded) / len(recorded), rel=0.05)


def test_every_log_is_recognised(logs):
    for log in logs:
        for path in expand(log):
            assert spark.recognise(head(path), path), path


@pytest.mark.parametrize(
    "name", ["local-1422981759269", "customshuffle_eventlog.zstd", "truncated_eventlog"]
)
def test_the_reader_passes_the_checks_of_readers_on_real_logs(directory, name):
    check_reader(lambda path: spark.read([path], Findings()), directory / name)
