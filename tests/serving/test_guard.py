"""Whatever a scheduler's process does, the guard answers in time, and counts why."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganger.errors import ConfigError, SchedulerError
from ganger.schedulers import Fair
from ganger.serving.asking import SMALL
from ganger.serving.guard import Breaker, Guard, GuardConfig, load_guard
from ganger.serving.process import NoAnswerError, SchedulerProcess, Setting

TOY = (sys.executable, str(Path(__file__).with_name("toy_process.py")))
CONFIG = GuardConfig(deadline_s=0.5, failures=1000)


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def guard_of(what, config=CONFIG, **more):
    process = SchedulerProcess(Setting(what), command=TOY)
    process.wait(30)
    return Guard(process, config, Fair(), **more)


@pytest.fixture
def guarded():
    """Guards that are closed afterwards, whatever happens."""
    made = []

    def make(*arguments, **more):
        made.append(guard_of(*arguments, **more))
        return made[-1]

    yield make
    for guard in made:
        pid = guard.process.pid
        guard.close()
        assert pid is None or not Path(f"/proc/{pid}").exists()


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_an_answer_of_the_scheduler_is_passed_on(guarded):
    answer = guarded("good").decide(replace(SMALL, version=7))
    assert (answer.version, answer.fallback, answer.scheduler) == (7, None, "good")
    assert [decision.job for decision in answer.decisions] == ["a"]
    assert answer.executors == (2,) and answer.probabilities == (0.5,)
    assert 0 < answer.latency_s < CONFIG.deadline_s


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("die", "died"),
        ("hang", "late"),
        ("freeze", "late"),
        ("slow", "late"),
        ("raise", "error"),
        ("illegal", "illegal"),
        ("greedy", "illegal"),
        ("garbage", "died"),
    ],
)
def test_the_fallback_decides_in_time_whatever_goes_wrong(guarded, what, reason):
    guard = guarded(what)
    for _ in range(3):
        answer = guard.decide(SMALL)
        assert answer.latency_s < CONFIG.deadline_s + 1.0, "a busy machine is granted a second"
        assert answer.fallback in (reason, "starting")
        assert answer.scheduler == "fair"
        assert answer.executors == (2,) and answer.decisions == (Fair().decide(SMALL),)
    first = guarded(what).decide(SMALL)
    assert first.fallback == reason, first.detail


def test_a_process_that_died_is_replaced_and_decides_again(guarded):
    guard = guarded("good")
    os.kill(guard.process.pid, signal.SIGKILL)
    assert guard.decide(SMALL).fallback == "died"
    until(lambda: guard.decide(SMALL).fallback is None)
    assert guard.process.starts == 2


def test_a_frozen_process_is_killed_and_replaced(guarded, monkeypatch):
    monkeypatch.setattr("ganger.serving.process._PATIENCE_S", 0.4)
    guard = guarded("freeze@1")
    assert guard.decide(SMALL).fallback is None
    frozen = guard.process.pid
    assert guard.decide(SMALL).fallback == "late"
    until(lambda: guard.decide(SMALL).fallback is None)
    assert guard.process.pid != frozen
    assert not Path(f"/proc/{frozen}").exists()


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(guarded):
    guard = guarded("slow@1", CONFIG)
    guard.decide(SMALL)
    outcomes = [guard.decide(replace(SMALL, version=v)) for v in range(1, 5)]
    assert {answer.fallback for answer in outcomes} == {"late"}
    assert [answer.version for answer in outcomes] == list(range(1, 5))
    assert guard.process.starts == 1, "a slow process is not replaced"


def test_a_process_that_cannot_start_says_why_and_is_not_started_in_a_loop():
    process = SchedulerProcess(Setting("refuse"), command=TOY)
    with pytest.raises(SchedulerError, match="refuse: no such scheduler"):
        process.wait(30)
    process = SchedulerProcess(Setting("exit"), command=TOY)
    with pytest.raises(SchedulerError, match="ended while it started"):
        process.wait(30)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        with pytest.raises(NoAnswerError):
            process.ask(SMALL, 0.01)
        time.sleep(0.01)
    assert process.starts <= 3
    process.close()
    process = SchedulerProcess(Setting("good"), command=("/no/such/program",))
    with pytest.raises(NoAnswerError, match="cannot be started"):
        process.ask(SMALL, 0.1)


def test_a_process_ends_with_who_asks_it():
    script = (
        "from ganger.serving.process import SchedulerProcess, Setting; import os, time;"
        f"p = SchedulerProcess(Setting('hang'), command={TOY!r}); p.wait(30); print(p.pid);"
        "os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    status = Path(f"/proc/{int(done.stdout)}/status")
    until(lambda: not status.exists() or "zombie" in status.read_text())


def test_the_breaker_opens_after_many_failures_and_says_so(guarded):
    clock, said = Clock(), []
    config = GuardConfig(deadline_s=0.5, failures=3, within_s=10, cool_down_s=30)
    guard = guarded("raise", config, say=said.append)
    guard.breaker = Breaker(config, clock)
    for _ in range(3):
        assert guard.decide(SMALL).fallback == "error"
    assert guard.decide(SMALL).fallback == "open"
    assert len(said) == 1 and "raise failed too often (error: ZeroDivisionError" in said[0]
    clock.now_s = 31
    assert guard.decide(SMALL).fallback == "error", "it gets one more try"
    assert guard.decide(SMALL).fallback == "open"


def test_the_breaker_closes_after_a_good_answer():
    clock = Clock()
    breaker = Breaker(GuardConfig(failures=2, within_s=10, cool_down_s=30), clock)
    assert not breaker.failed()
    clock.now_s = 11
    assert not breaker.failed(), "the first one is forgotten"
    assert breaker.failed() and breaker.open
    clock.now_s = 45
    assert not breaker.open and breaker.succeeded()
    assert not breaker.failed() and not breaker.open, "it begins to count anew"


@pytest.mark.parametrize(
    "wrong", [{"deadline_s": 0}, {"failures": 0}, {"cool_down_s": float("nan")}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        GuardConfig(**wrong)


def test_a_policy_decides_through_its_process_as_it_does_here():
    import ganger

    guard = load_guard(Setting("general"), GuardConfig(deadline_s=5))
    try:
        for version in range(3):
            seen = replace(SMALL, version=version)
            answer = guard.decide(seen)
            assert answer.fallback is None, answer.detail
            assert answer.decisions[0] == ganger.load_scheduler("general").decide(seen)
            assert len(answer.probabilities) == len(answer.decisions)
            assert all(0 < p <= 1 for p in answer.probabilities)
    finally:
        guard.close()


def test_no_scheduler_of_that_name():
    with pytest.raises(SchedulerError, match="'nonsense' is unknown"):
        load_guard(Setting("nonsense"), GuardConfig())
    with pytest.raises(SchedulerError, match="'general' is unknown"):
        load_guard(Setting("fair"), GuardConfig(fallback="general"))
