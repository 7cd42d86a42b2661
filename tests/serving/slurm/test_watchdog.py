"""The watchdog, with commands that are scripts: no Slurm is needed."""

import json
import os
import stat
import time

import pytest

from ganger.errors import ConfigError
from ganger.serving.slurm.acting import Drives, Given
from ganger.serving.slurm.watchdog import Watchdog, lock

ROW = {
    "job_id": 7, "array_job_id": 7, "array_task_string": "0-3", "array_max_tasks": 2,
    "job_state": "PENDING", "state_reason": "JobHeldUser", "priority": 0, "comment": "ganger",
    "partition": "toy",
}  # fmt: skip


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands that write down how they are called; scontrol fails the first time."""
    jobs = [ROW, ROW | {"job_id": 9, "array_job_id": 9, "comment": "mine"}]
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": jobs}))
    scripts = {
        "squeue": f"cat {tmp_path}/jobs.json",
        "scontrol": (
            f'echo "$@" >>{tmp_path}/log\n'
            f"[ -e {tmp_path}/failed ] && exit 0\ntouch {tmp_path}/failed\nexit 1"
        ),
    }
    for name, script in scripts.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path))

    def called():
        log = tmp_path / "log"
        return log.read_text().splitlines() if log.exists() else []

    return called


def test_it_gives_back_when_the_driver_has_gone_and_tries_again(commands):
    held = lock("toy")
    watchdog = Watchdog("toy", 5.0, held)
    watchdog.tell(Drives("toy", [Given(7, 4)]))
    with pytest.raises(ConfigError, match="is driven already"):
        lock("toy")
    held.close()
    watchdog.abandon()  # as the end of the driver does
    end = time.monotonic() + 20
    while commands()[-1:] != ["release 7"] or len(commands()) < 4:
        assert time.monotonic() < end, commands()
        time.sleep(0.05)
    watchdog._process.wait(20)
    assert set(commands()) == {"update JobId=7 ArrayTaskThrottle=4", "release 7"}
    lock("toy").close()


def test_it_does_nothing_after_a_goodbye(commands):
    with lock("toy") as held:
        watchdog = Watchdog("toy", 5.0, held)
        watchdog.tell(Drives("toy", [Given(7, 4)]))
        watchdog.goodbye()
        assert commands() == []


def test_one_that_dies_is_replaced(commands):
    with lock("toy") as held:
        watchdog = Watchdog("toy", 5.0, held)
        os.kill(watchdog.pid, 9)
        end = time.monotonic() + 20
        while watchdog.starts == 1:
            watchdog.tell(Drives("toy", [Given(7, 4)]))
            assert time.monotonic() < end
            time.sleep(0.05)
        watchdog.goodbye()
