"""Promoting a scheduler, trying one out, and going back: without a decision being missed."""

import os
import signal
import time

import pytest
from msgspec.structs import replace

from ganger.cli import main
from ganger.errors import ConfigError
from ganger.serving.asking import SMALL
from ganger.serving.deployment import (
    Deployment,
    compared,
    read_deployment,
    watched,
    write_deployment,
)
from ganger.serving.guard import GuardConfig, load_guard
from ganger.serving.process import Setting
from ganger.workload import load_source, random_workload, write_workload


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "deployment.json"
    write_deployment(path, Deployment(scheduler="fair"))
    return path


def promote(*arguments):
    return main(["promote", *map(str, arguments)])


def test_a_promotion_is_followed_without_a_missed_decision(path):
    said, versions = [], iter(range(10**6))
    guard = load_guard(Setting("fair"), GuardConfig(deadline_s=5, failures=2), say=said.append)

    def until(who, seconds=60):
        end = time.monotonic() + seconds
        while True:
            answer = guard.decide(replace(SMALL, version=next(versions)))
            assert answer.fallback is None, answer.detail
            if answer.scheduler == who:
                return
            assert time.monotonic() < end, said

    try:
        with watched(path, guard, False, said.append):
            until("fair")
            assert promote(path, "srpt") == 0
            until("srpt")
            assert promote(path, "fifo", "--share", "0.5") == 0
            until("fifo")
            until("srpt")
            # A candidate that dies is no longer tried, and the other one goes on.
            for _ in range(2):
                os.kill(guard._candidate.pid, signal.SIGKILL)
                until("srpt")
                while guard._candidate is not None and guard._candidate_failures < 2:
                    guard.decide(replace(SMALL, version=next(versions)))
                if guard._candidate is None:
                    break
            assert guard._candidate is None and "no longer tried" in said[-1]
            assert promote(path, "--rollback") == 0  # of the candidate
            assert promote(path, "--rollback") == 0
            until("fair")
            # What makes no sense is said, and not followed.
            path.write_text('{"scheduler":"nonsense"}')
            end = time.monotonic() + 60
            while "not followed: nonsense: scheduler 'nonsense' is unknown" not in said[-1]:
                assert time.monotonic() < end, said
                until("fair")
    finally:
        guard.close()


def test_going_back_needs_somewhere_to_go(path, capsys):
    assert promote(path, "srpt") == 0
    assert read_deployment(path) == Deployment(scheduler="srpt", previous="fair")
    assert promote(path, "--rollback") == 0
    assert read_deployment(path) == Deployment(scheduler="fair")
    assert promote(path, "--rollback") == 2
    assert "there is nothing to go back to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{path}", "nonsense"], "scheduler 'nonsense' is unknown"),
        (["{path}"], "say which scheduler is to decide"),
        (["{path}", "srpt", "--rollback"], "--rollback needs"),
        (["{path}", "srpt", "--share", "2"], "--share is 2.0"),
        (["{path}.txt", "srpt"], "a deployment's name ends in .json"),
        (["/no/such/place.json", "srpt"], "cannot be written"),
        (["{path}", "srpt", "--log", "no/such/log"], "no/such/log"),
    ],
)
def test_what_cannot_be_promoted_is_one_line_and_changes_nothing(path, capsys, arguments, said):
    assert promote(*(word.format(path=path) for word in arguments)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("ganger: ") and said in last
    assert read_deployment(path) == Deployment(scheduler="fair")


@pytest.mark.parametrize("text", ["", "[]", '{"scheduler":1}', '{"scheduler":"a","share":2}'])
def test_a_file_that_is_no_deployment(path, text):
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"deployment\.json"):
        read_deployment(path)


def test_a_worse_scheduler_is_not_taken(path, tmp_path, capsys):
    workload = random_workload(load_source("synthetic"), jobs=400, interarrival_s=25.0, seed=0)
    log = tmp_path / "seen.jobs.jsonl"
    write_workload(log, workload)
    assert promote(path, "fifo", "--log", log) == 2
    assert "fifo is worse than fair: not taken" in capsys.readouterr().err
    assert promote(path, "fair:source=capped", "--log", log) == 0
    assert "of fair's" in capsys.readouterr().err
    assert promote(path, "fifo", "--log", log, "--force") == 0
    assert read_deployment(path).scheduler == "fifo"


def test_what_is_worse_by_less_than_the_noise_is_taken():
    import numpy as np

    even = np.ones((2, 4, 3))
    assert compared(even).good
    noisy = even * np.array([[1.0, 1.4, 0.7, 1.0], [1.0] * 4])[:, :, None]
    assert compared(noisy).ratio > 1 and compared(noisy).good
    assert not compared(even * np.array([1.1, 1.0])[:, None, None]).good
