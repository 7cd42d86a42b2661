"""A real Dask cluster of processes, driven: what is marked follows the policy, and nothing is lost.

The short form of what benchmarks/dask_comparison.py measures.
"""

import json
import os
import signal
import subprocess
import time

import httpx
import pytest
from dask import delayed
from dask_cluster import DaskCluster, SleepJob, fails_once, run_jobs, sleep_task, stop

import ganger.dask
from ganger.cli import main
from ganger.workload import read_workload

LONG = SleepJob("long", (24, 1), (0.15, 0.05))
SHORT = SleepJob("short", (4, 1), (0.15, 0.05))


@pytest.fixture(scope="module")
def cluster():
    with DaskCluster(4) as cluster:
        yield cluster


@pytest.fixture
def agent(cluster, tmp_path):
    """Start an agent; it is gone afterwards."""
    started = []

    def start(scheduler, *flags):
        flags = (*flags, "--record", str(tmp_path), "--deadline-s", "1")
        started.append(cluster.start_agent(scheduler, *flags))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            stop(process)


runs = iter(range(1000))


def ended(process):
    """Stop an agent as people do; what it counted."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return json.loads(out)


def test_the_shortest_job_goes_first_although_it_came_later(cluster, agent, tmp_path):
    driving = agent("srpt")
    run_jobs(cluster, [LONG, SHORT], run=next(runs))  # it learns how long they take
    long_s, short_s = run_jobs(cluster, [LONG, SHORT], run=next(runs))
    figures = ended(driving)
    assert short_s < 0.7 * long_s
    assert figures["ganger_events_total launched"] == 2 * (25 + 5)
    assert figures["ganger_jct_seconds_count"] == 4
    assert "ganger_events_total late" not in figures
    assert figures["estimates"]["history"]["factor"] < 2, "it knew how long they would take"
    # What it recorded is a workload.
    workload = read_workload(tmp_path / "jobs.jobs.jsonl")
    assert len(workload.jobs) == 4
    long = next(job for job in workload.jobs if job.id.startswith("long"))
    assert [stage.task_count for stage in long.stages] == [24, 1]
    assert all(0.15 <= s < 0.4 for s in long.stages[0].durations.values_s)
    assert main(["simulate", "--workload", str(tmp_path / "jobs.jobs.jsonl")]) == 0
    # A line for every round.
    lines = (tmp_path / "decisions.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    assert len(rounds) == sum(n for k, n in figures.items() if k.startswith("ganger_rounds_total"))
    assert all(0 < one["answer"]["latency_s"] < 5 for one in rounds)


def test_first_in_first_out_is_what_it_says(cluster, agent):
    agent("fifo")
    long_s, short_s = run_jobs(cluster, [LONG, SHORT], run=next(runs))
    assert short_s > 0.75 * (long_s - 0.15)


def test_a_trained_policy_drives(cluster, agent):
    driving = agent("general")
    run_jobs(cluster, [LONG, SHORT], run=next(runs))
    figures = ended(driving)
    assert figures["ganger_events_total launched"] == 30
    assert figures["ganger_decisions_total"] > 3
    assert "ganger_fallbacks_total late" not in figures


def test_what_is_not_marked_is_not_touched(cluster, agent):
    driving = agent("srpt")
    run_jobs(cluster, [LONG], run=next(runs), mark=False)
    assert "ganger_events_total launched" not in ended(driving)


def test_without_an_agent_jobs_are_served_in_order(cluster):
    jobs = [LONG, SHORT]
    assert all(run_jobs(cluster, jobs, run=next(runs)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_agent_that_dies_or_freezes_does_not_stop_the_cluster(cluster, agent, number):
    driving = agent("srpt")

    def strike():
        time.sleep(0.4)
        driving.send_signal(number)

    assert all(run_jobs(cluster, [LONG, SHORT], run=next(runs), meanwhile=strike))
    stop(driving)
    again = agent("fair")  # and another one may take over
    assert all(run_jobs(cluster, [SHORT], run=next(runs)))
    assert ended(again)["ganger_rounds_total acted"] >= 1


def test_a_policy_process_that_dies_is_replaced(cluster, agent):
    driving = agent("general")
    found = subprocess.run(["pgrep", "-P", str(driving.pid)], capture_output=True, check=True)
    os.kill(int(found.stdout), signal.SIGKILL)
    assert all(run_jobs(cluster, [LONG, SHORT], run=next(runs)))
    figures = ended(driving)
    assert figures["ganger_fallbacks_total died"] == 1


def test_workers_that_die_lose_nothing(cluster, agent):
    driving = agent("srpt")

    def strike():
        time.sleep(0.5)
        for worker in cluster.worker_processes[-2:]:
            worker.kill()
        cluster.start_worker()
        cluster.start_worker()

    assert all(run_jobs(cluster, [LONG, SHORT], run=next(runs), meanwhile=strike))
    counts = ended(driving)
    assert counts["ganger_events_total workers_lost"] == 2
    assert counts["ganger_events_total tasks_interrupted"] >= 1
    cluster.client.wait_for_workers(4)


def test_a_client_that_leaves_takes_its_job_along(cluster, agent):
    driving = agent("srpt")
    client = cluster.new_client()
    with ganger.dask.job("left"):
        tasks = [delayed(sleep_task, pure=False)(0.5, dask_key_name=("left", i)) for i in range(40)]
        futures = client.compute(tasks)
    time.sleep(1)
    del futures
    client.close()
    began = time.monotonic()
    assert all(run_jobs(cluster, [SHORT], run=next(runs)))
    assert time.monotonic() - began < 5, "it did not wait for tasks that nobody wants"
    assert ended(driving).get("ganger_jobs", 0) <= 1, "what is zero is not printed"


def test_tasks_that_fail_end_their_job_and_no_other(cluster, agent):
    agent("srpt")
    with cluster.new_client() as client:
        with ganger.dask.job("fails"):
            bad = delayed(lambda: 1 / 0)()
            future = client.compute(delayed(sleep_task)(0.1, bad))
        with pytest.raises(ZeroDivisionError):
            future.result(timeout=20)
        assert all(run_jobs(cluster, [SHORT], run=next(runs)))
        with ganger.dask.job("retried"):
            flaky = client.submit(fails_once, f"{os.getpid()}-{next(runs)}", retries=2, pure=False)
        assert flaky.result(timeout=20) == "done"


def test_the_status_page_says_how_it_goes(cluster, agent):
    driving = cluster.start(
        "ganger", "drive", "dask", cluster.address, "--scheduler", "fair", "--status-port", "0"
    )
    try:
        url = cluster._said(driving, r"status and metrics at (\S+)")
        cluster._said(driving, r"driving (\S+)")
        run_jobs(cluster, [SHORT], run=next(runs))
        assert "ganger_events_total" in httpx.get(f"{url}metrics").text
        assert cluster.address in httpx.get(url).text
    finally:
        stop(driving)


def test_a_wrong_token_is_refused(cluster, monkeypatch, capsys):
    monkeypatch.setenv("GANGER_TOKEN", "wrong")
    assert main(["drive", "dask", cluster.address, "--scheduler", "fair"]) == 2
    assert "the token is wrong" in capsys.readouterr().err
    monkeypatch.delenv("GANGER_TOKEN")
    assert main(["drive", "dask", cluster.address]) == 2
    assert "--token-file or in GANGER_TOKEN" in capsys.readouterr().err


def test_a_dry_run_changes_nothing_but_says_what_it_would(cluster, agent, tmp_path):
    driving = agent("srpt", "--dry-run")
    run_jobs(cluster, [SHORT], run=next(runs))
    figures = ended(driving)
    assert figures["ganger_rounds_total dry-run"] >= 1
    assert "ganger_rounds_total acted" not in figures
    lines = (tmp_path / "decisions.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["answer"]["decisions"]


def test_the_scheduler_may_be_restarted(cluster, agent):
    driving = agent("srpt")
    cluster.client.restart(timeout=60, wait_for_workers=False)
    time.sleep(1)
    while len(cluster.client.scheduler_info()["workers"]) < 4:  # they run without a nanny
        cluster.start_worker()
        cluster.client.wait_for_workers(1)
        time.sleep(1)
    assert all(run_jobs(cluster, [LONG, SHORT], run=next(runs)))
    assert ended(driving)["ganger_events_total restarts"] == 1
