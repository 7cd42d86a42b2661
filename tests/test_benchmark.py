"""What is measured, not how fast it is."""

import math
from functools import partial

import pytest

from ganger import benchmark as measured
from ganger.benchmark import benchmark, state_of_20_jobs_and_36_frontier_stages
from ganger.training.config import TrainConfig


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(measured, "_REPEATS", 2)
    monkeypatch.setattr(measured, "_DECISIONS", 5)
    monkeypatch.setattr(measured, "_SIMULATED_JOBS", 5)
    monkeypatch.setattr(measured, "_TRAINING_S", 0.5)
    monkeypatch.setattr(measured, "TrainConfig", partial(TrainConfig, environments=8, steps=16))


FIGURES = (
    "simulator_events_per_s",
    "simulator_decisions_per_s",
    "acting_decisions_per_s",
    "decision_us",
    "learner_decisions_per_s",
    "training_decisions_per_s",
    "peak_memory_mb",
)


def test_every_figure_is_measured_and_the_machine_named():
    seen = []
    figures = benchmark(seed=1, progress=lambda done, of, what: seen.append((done, of, what)))

    for name in FIGURES:
        assert 0 < figures[name] < math.inf, name
    assert figures["machine"]["cpus"] >= 1
    assert (figures["workload"], figures["seed"]) == ("synthetic", 1)
    assert seen == [
        (k, 5, what) for k, what in enumerate(("simulate", "decide", "act", "train", "learn"))
    ]


def test_without_torch_the_rest_is_measured(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    figures = benchmark()
    assert figures["learner_decisions_per_s"] is None
    assert figures["training_decisions_per_s"] is None
    assert figures["acting_decisions_per_s"] > 0


def test_the_timed_decision_has_20_jobs_and_36_frontier_stages():
    state, _ = state_of_20_jobs_and_36_frontier_stages()
    clock = state.clock[0]
    assert clock["active"] == 20
    assert clock["schedulable"] == 36
    assert clock["on_offer"] == 50
