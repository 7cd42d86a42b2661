"""A real Spark application on a standalone cluster on loopback, driven.

The short form of what benchmarks/spark.py measures: jobs of sleeping tasks on 4 slots.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from serving.spark.application import JOBS, TASKS
from serving.spark.cluster import SparkCluster, missing

from ganger.cli import main
from ganger.workload import read_workload

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

APPLICATION = Path(__file__).with_name("application.py")
# The first one is for warming up, and for learning how long tasks take.
SCENARIOS = ("fifo", "spark-fifo", "srpt", "general", "srpt+kill", "srpt+shadow")
WARM_UP = (2, 16)  # jobs, tasks


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What each scenario gave, and where its records and the event log are."""
    seen = tmp_path_factory.mktemp("seen")
    with SparkCluster() as cluster:
        addresses = cluster.listening()
        done = subprocess.run(
            [sys.executable, str(APPLICATION), str(seen), *SCENARIOS],
            env=cluster.environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        (log,) = cluster.events.iterdir()
        log = log.rename(seen / log.name)
    assert cluster.left() == [] and not cluster.at.exists()
    results = {line["scenario"]: line for line in lines[1:]}
    return {"seen": seen, "log": log, "addresses": addresses, "results": results}


def test_the_cluster_listens_on_loopback_only(run):
    assert len(run["addresses"]) >= 3
    assert {address.removeprefix("::ffff:") for address in run["addresses"]} == {"127.0.0.1"}


@pytest.mark.parametrize("scheduler", ["srpt", "general"])
@pytest.mark.parametrize("baseline", ["spark-fifo", "fifo"])
def test_shortest_first_and_a_trained_policy_beat_first_in_first_out(run, scheduler, baseline):
    driven, alone = run["results"][scheduler], run["results"][baseline]
    assert driven["mean_jct_s"] < 0.9 * alone["mean_jct_s"]
    assert not any(name.startswith(("fallback", "err", "unatt")) for name in driven["counts"])


def test_with_the_policys_process_killed_all_jobs_end(run):
    result = run["results"]["srpt+kill"]
    assert len(result["jct_s"]) == len(JOBS) and all(result["jct_s"])
    assert result["counts"]["fallback died"] >= 1
    assert result["left"] == []


def test_the_event_log_holds_what_was_submitted(run, capsys):
    assert main(["inspect", str(run["log"]), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    runs = len(SCENARIOS)
    assert facts["jobs"] == runs * len(JOBS) + WARM_UP[0]
    assert facts["tasks"] == runs * TASKS + WARM_UP[1]


def test_what_the_driver_saw_is_a_workload_with_about_the_durations_that_spark_logged(run):
    seen = read_workload(run["seen"] / "jobs.jobs.jsonl")
    assert len(seen.jobs) == len(JOBS) * (len(SCENARIOS) - 1)  # all but spark-fifo
    long = [job for job in seen.jobs if job.id.startswith("long-0#")]
    assert [[stage.task_count for stage in job.stages] for job in long] == [[24, 4]] * len(long)
    estimates = json.loads((run["seen"] / "estimates.json").read_text())["names"]
    assert 0.15 < estimates["long/0"]["mean_s"] < 0.6


def test_in_the_shadow_decisions_are_recorded(run):
    lines = (run["seen"] / "decisions.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    outcomes = {one["outcome"] for one in rounds}
    assert outcomes == {"acted", "shadow"}
    assert not any(name.startswith("rank") for name in run["results"]["srpt+shadow"]["counts"])
