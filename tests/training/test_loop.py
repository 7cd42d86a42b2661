"""A training run from start to end, on jobs small enough for seconds."""

import threading
import time

import msgspec
import numpy as np
import pytest
import torch
import toys

from ganger.errors import TrainingError
from ganger.policy.layout import vector_size
from ganger.training import loop
from ganger.training.actor import Actor
from ganger.training.cells import measure_cells
from ganger.training.config import LearningConfig, TrainConfig
from ganger.training.learner import Learner, NonFiniteError
from ganger.training.run_directory import RunDirectory
from ganger.workload import load_source

RECORDED = (
    "policy_loss", "value_loss", "entropy", "kl", "gradient_norm", "explained_variance",
    "importance_mean", "importance_clipped", "learning_rate", "entropy_weight", "decisions",
    "decisions_per_s", "acting_decisions_per_s", "learning_decisions_per_s", "learner_idle_share",
    "actor_idle_share", "lag_mean", "lag_max", "recent_jct_s", "recent_fair_jct_s", "recent_ratio",
    "elapsed_s",
)  # fmt: skip


def run_of(tmp_path, **settings):
    return toys.config(workload=toys.write_toy_workload(tmp_path / "toy.jobs.jsonl"), **settings)


def stop_after(updates):
    """A progress callback that asks to stop after so many updates, and the event to ask with."""
    stop, seen = threading.Event(), []

    def progress(metrics):
        seen.append(metrics)
        if len(seen) >= updates:
            stop.set()

    return stop, progress, seen


def thread_names():
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("actors", [1, 2])
def test_a_run_that_is_stopped_ends_in_seconds_and_leaves_all_it_should(tmp_path, actors):
    config = run_of(tmp_path, actors=actors)
    stop, progress, seen = stop_after(12)
    before = thread_names()
    outcome = loop.train(config, tmp_path / "run", progress=progress, stop=stop)
    assert thread_names() <= before, "no thread is left"
    assert outcome.reason == "stopped"
    assert outcome.updates >= 12
    assert outcome.decisions == outcome.updates * config.environments * config.steps

    run = RunDirectory.open(tmp_path / "run")
    assert run.config(TrainConfig) == config
    records = [record for record in run.metrics() if "kl" in record]
    assert [record["step"] for record in records] == list(range(1, outcome.updates + 1))
    assert not [name for name in RECORDED if name not in records[-1]]
    assert all(0 <= record["learner_idle_share"] <= 1 for record in records)
    if actors == 1:
        # It asks for room before it acts: one trajectory is learned from while the next is made.
        # (Beside a second actor the learner goes on, and a slow one falls behind by as much.)
        assert max(record["lag_max"] for record in records) <= 1
    checkpoint = run.latest_checkpoint()
    assert checkpoint.step == outcome.updates
    assert checkpoint.tensors["policy"].shape == (vector_size(False),)
    assert np.isfinite(checkpoint.tensors["policy"]).all()
    assert (tmp_path / "run" / "stop_reason.json").is_file()
    assert seen


def test_a_stop_is_heeded_within_seconds_even_while_the_learner_waits(tmp_path, monkeypatch):
    """The actors never deliver."""
    stop, acting, original = threading.Event(), threading.Event(), Actor.act
    asked_at = []

    def act(self, parameters):
        if threading.current_thread() is threading.main_thread():
            return original(self, parameters)
        acting.set()
        stop.wait(20)
        return original(self, parameters)

    monkeypatch.setattr(Actor, "act", act)

    def stop_when_acting():
        acting.wait(60)
        asked_at.append(time.monotonic())
        stop.set()

    stopper = threading.Thread(target=stop_when_acting)
    stopper.start()
    loop.train(run_of(tmp_path), tmp_path / "run", stop=stop)
    ended_at = time.monotonic()
    stopper.join()
    assert ended_at - asked_at[0] < 5
    assert RunDirectory.open(tmp_path / "run").latest_checkpoint().step == 0


def test_a_run_ends_when_its_time_is_up(tmp_path):
    outcome = loop.train(run_of(tmp_path, minutes=0.01), tmp_path / "run")
    assert outcome.reason == "time"
    assert RunDirectory.open(tmp_path / "run").latest_checkpoint().step == outcome.updates


def test_an_actor_that_dies_ends_the_run_with_its_reason(tmp_path, monkeypatch):
    original = Actor.act

    def act(self, parameters):
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("the actor is broken")
        return original(self, parameters)

    monkeypatch.setattr(Actor, "act", act)
    before = thread_names()
    with pytest.raises(TrainingError, match="actor 0 died: ValueError: the actor is broken"):
        loop.train(run_of(tmp_path), tmp_path / "run")
    assert thread_names() <= before
    assert "the actor is broken" in (tmp_path / "run" / "stop_reason.json").read_text()


def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_batch(tmp_path, monkeypatch):
    original = Learner.update

    def update(self, trajectories, progress):
        if self._updates == 2:
            with torch.no_grad():
                next(iter(self.critic.parameters())).fill_(torch.nan)
        return original(self, trajectories, progress)

    monkeypatch.setattr(Learner, "update", update)
    before = thread_names()
    with pytest.raises(NonFiniteError, match="not finite after 2 updates"):
        loop.train(run_of(tmp_path), tmp_path / "run")
    assert thread_names() <= before
    with np.load(tmp_path / "run" / "failed_batch.npz", allow_pickle=False) as batch:
        assert {"stages", "jobs", "globals", "chosen"} <= set(batch)
    assert "not finite" in (tmp_path / "run" / "stop_reason.json").read_text()
    records = RunDirectory.open(tmp_path / "run").metrics()
    assert len([record for record in records if "kl" in record]) == 2


def test_a_run_that_fails_at_its_start_says_so_on_disk(tmp_path):
    config = run_of(tmp_path, learning=LearningConfig(learning_rate=1e30))
    with pytest.raises(NonFiniteError):
        loop.train(config, tmp_path / "run")
    run = RunDirectory.open(tmp_path / "run")
    assert "not finite" in run.stop_reason
    assert (tmp_path / "run" / "failed_batch.npz").exists()


def test_the_horizon_follows_how_long_jobs_stay_unless_it_is_given(tmp_path):
    path = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    source = load_source(path)
    free = measure_cells(toys.config(learning=LearningConfig()), source)
    slow = measure_cells(toys.config(learning=LearningConfig(), interarrival_s=0.5), source)
    assert 0 < free.lambda_time_s[0] < free.discount_time_s[0] < slow.discount_time_s[0]
    given = measure_cells(toys.config(), source)
    assert (given.discount_time_s[0], given.lambda_time_s[0]) == (100.0, 30.0)


def test_each_cell_has_times_of_its_own_and_its_environments(tmp_path):
    path = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    config = toys.config(
        executors=(1, 3), interarrival_s=(0.5, 6.0), learning=LearningConfig(), workload=path
    )
    cells = measure_cells(config, load_source(path))
    assert config.cells == ((1, 0.5), (1, 6.0), (3, 0.5), (3, 6.0))
    assert cells.executors.tolist() == [1, 1, 3, 3]
    assert cells.discount_time_s[0] > cells.discount_time_s[1] > cells.discount_time_s[3]
    acted = toys.actor(executors=(1, 3), interarrival_s=(0.5, 6.0))
    environments = acted._environments.environments
    assert environments["executors"].tolist() == [1, 1, 3, 3] * 2
    assert environments["mean_interarrival_s"].tolist() == [0.5, 6.0] * 4
    outcome = loop.train(msgspec.structs.replace(config, decisions=600), tmp_path / "run")
    assert outcome.reason == "decisions"
