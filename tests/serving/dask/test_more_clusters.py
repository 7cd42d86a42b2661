"""Clusters of their own: TLS, the shadow, a scheduler that dies, and other versions of Dask."""

import json
import logging
import signal
import subprocess
import time
from shutil import which
from types import SimpleNamespace

import pytest
from dask_cluster import DaskCluster, SleepJob, run_jobs, stop

from ganger.errors import ConfigError
from ganger.serving.dask import plugin
from ganger.workload import read_workload

LONG = SleepJob("long", (16, 1), (0.15, 0.05))
SHORT = SleepJob("short", (4, 1), (0.15, 0.05))


def figures_of(agent):
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=20)
    assert agent.returncode == 0, err
    return json.loads(out)


@pytest.mark.skipif(which("openssl") is None, reason="needs openssl to make certificates")
def test_tls(tmp_path):
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    with DaskCluster(2, tls=(cert, cert, key)) as cluster:
        assert cluster.address.startswith("tls://")
        agent = cluster.start_agent("srpt", "--tls-ca", cert, "--tls-cert", cert, "--tls-key", key)
        assert all(run_jobs(cluster, [SHORT]))
        assert figures_of(agent)["ganger_events_total launched"] == 5


def test_in_the_shadow_nothing_is_changed_and_everything_is_seen(tmp_path):
    with DaskCluster(4, environment={"GANGER_SHADOW": "1"}) as cluster:
        agent = cluster.start_agent("srpt", "--record", str(tmp_path))
        assert all(run_jobs(cluster, [LONG, SHORT]))
        time.sleep(0.5)
        figures = figures_of(agent)
    assert "ganger_events_total launched" not in figures
    assert figures["ganger_rounds_total shadow"] >= 2
    assert "ganger_rounds_total acted" not in figures
    workload = read_workload(tmp_path / "jobs.jobs.jsonl")
    assert sorted(job.id for job in workload.jobs) == ["long.0", "short.0"]
    counts = {job.id: [stage.task_count for stage in job.stages] for job in workload.jobs}
    assert counts == {"long.0": [16, 1], "short.0": [4, 1]}
    lines = (tmp_path / "decisions.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    assert any(one["answer"]["decisions"] for one in rounds)


def test_an_agent_outlives_the_scheduler():
    with DaskCluster(2) as cluster:
        agent = cluster.start_agent("srpt")
        assert all(run_jobs(cluster, [SHORT]))
        port = int(cluster.address.rsplit(":", 1)[1])
        cluster.client.close(timeout=5)
        stop(cluster.scheduler)
        for worker in cluster.worker_processes:
            stop(worker)
        cluster.start_scheduler(port)
        for _ in range(2):
            cluster.start_worker()
        cluster.client = cluster.new_client()
        cluster.client.wait_for_workers(2, timeout=60)
        cluster._said(agent, r"driving (\S+)")
        assert all(run_jobs(cluster, [LONG], run=1))
        figures = figures_of(agent)
    assert figures["ganger_events_total disconnected"] >= 1
    assert figures["ganger_events_total launched"] == 5 + 17


def test_a_scheduler_without_the_preload_is_told_apart():
    with DaskCluster(0, gated=False) as cluster:
        agent = cluster.start_agent("fair", wait=False)
        _, err = agent.communicate(timeout=60)
    assert agent.returncode == 2
    assert "was not started with --preload ganger.dask" in err


# ---------------------------------------------------------------- the canary
class Scheduler:
    """What of Dask's scheduler is used."""

    handlers = tasks = workers = running = unrunnable = None

    def transitions(self, recommendations, stimulus_id):
        pass


def test_this_version_of_dask_can_be_driven(caplog):
    plugin.check_scheduler(Scheduler())
    with caplog.at_level(logging.WARNING, "ganger.dask"):
        plugin.check_scheduler(Scheduler())
    assert not caplog.records, "this version is not in KNOWN: run all tests, then add it"


def test_a_version_with_other_internals_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="its scheduler has no 'unrunnable'"):
        plugin.check_scheduler(SimpleNamespace(**dict.fromkeys(
            ("handlers", "tasks", "workers", "running", "transitions"))))  # fmt: skip

    class Renamed(Scheduler):
        def transitions(self, recs, stimulus):
            pass

    with pytest.raises(ConfigError, match=r"its transitions\(\) is another one"):
        plugin.check_scheduler(Renamed())
    import distributed.scheduler

    monkeypatch.setattr(distributed.scheduler, "TaskState", type("TaskState", (), {"state": 1}))
    with pytest.raises(ConfigError, match="its tasks have no actor, annotations"):
        plugin.check_scheduler(Scheduler())


def test_an_unknown_version_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(plugin, "KNOWN", ("1999.1",))
    with caplog.at_level(logging.WARNING, "ganger.dask"):
        plugin.check_scheduler(Scheduler())
    assert "is not one of the versions tested: 1999.1" in caplog.text


def test_without_a_secret_nothing_is_gated():
    with pytest.raises(ConfigError, match="set GANGER_TOKEN"):
        plugin.Gate("")
