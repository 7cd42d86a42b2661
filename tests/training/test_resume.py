"""A run that was interrupted goes on; a synchronous one as if it had never been interrupted."""

import hashlib
import os
import shutil
import threading
import time

import msgspec
import numpy as np
import pytest
import toys

from ganger.errors import CheckpointError, ConfigError
from ganger.policy.checkpoint import checkpoint_path, read_checkpoint, read_policy
from ganger.training import loop
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.learner import Learner
from ganger.training.restart import restored
from ganger.training.run_directory import RunDirectory
from ganger.training.validation import Validation, Validator


@pytest.fixture
def config(tmp_path):
    """Six updates in turns."""
    workload = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    return toys.config(workload=workload, sync=True, updates=6, executors=(1, 3), actors=2)


def fingerprint(run):
    """Of everything that learning goes on from."""
    tensors = RunDirectory.open(run).latest_checkpoint().tensors
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in tensors.items()}


def stop_at(update):
    stop = threading.Event()
    seen = []

    def progress(metrics):
        seen.append(metrics)
        if len(seen) == update:
            stop.set()

    return {"stop": stop, "progress": progress}


# --- in turns


def test_two_synchronous_runs_of_one_seed_are_the_same_and_another_seed_differs(config, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        outcome = loop.train(msgspec.structs.replace(config, seed=seed), tmp_path / name)
        assert (outcome.reason, outcome.updates) == ("updates", 6)
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    assert fingerprint(tmp_path / "a")["policy"] != fingerprint(tmp_path / "c")["policy"]
    records = RunDirectory.open(tmp_path / "a").metrics()
    assert {record["lag_max"] for record in records} == {0}


@pytest.mark.parametrize("messages", [False, True])
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(config, tmp_path, messages):
    config = msgspec.structs.replace(config, messages=messages)
    loop.train(config, tmp_path / "whole")
    outcome = loop.train(config, tmp_path / "parts", **stop_at(2))
    assert (outcome.reason, outcome.updates) == ("stopped", 2)
    assert fingerprint(tmp_path / "parts")["policy"] != fingerprint(tmp_path / "whole")["policy"]
    outcome = loop.train(config, tmp_path / "parts", resume=True)
    assert (outcome.reason, outcome.updates, outcome.decisions) == ("updates", 6, 6 * 8 * 32)
    assert fingerprint(tmp_path / "parts") == fingerprint(tmp_path / "whole")
    records = RunDirectory.open(tmp_path / "parts").metrics()
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]


def test_patience_does_not_notice_an_interruption(config, tmp_path, monkeypatch):
    """What is validated at the end of a session would not be in an uninterrupted run."""
    config = msgspec.structs.replace(config, updates=40, patience=2, validate_every_s=1.0)

    def give(ratios):
        ratios = iter(ratios)

        def validate(self, vector, give_up=None):
            return Validation(0.1 if give_up else next(ratios), 1.0, 1.0, 0.0)

        monkeypatch.setattr(Validator, "validate", validate)

    ratios = [0.9, 0.8, 0.85, 0.86]  # after every second update
    give(ratios)
    whole = loop.train(config, tmp_path / "whole")
    give(ratios)
    part = loop.train(config, tmp_path / "parts", **stop_at(3))
    assert (part.reason, part.updates, part.best_ratio) == ("stopped", 3, 0.9)
    validations = [
        r for r in RunDirectory.open(tmp_path / "parts").metrics() if "validation_ratio" in r
    ]
    assert validations[-1]["validation_ratio"] == 0.1, "it is validated all the same"
    parts = loop.train(config, tmp_path / "parts", resume=True)
    assert parts == whole._replace(run=tmp_path / "parts")
    assert (whole.reason, whole.updates) == ("plateau", 8)
    assert fingerprint(tmp_path / "parts") == fingerprint(tmp_path / "whole")


def test_killed_and_resumed_is_the_same_too(config, tmp_path, monkeypatch):
    """With validations, at whatever moment: a copy of the directory is what a kill leaves."""
    config = msgspec.structs.replace(config, patience=4, validate_every_s=1.0)
    monkeypatch.setattr(loop, "_CHECKPOINT_S", 0.0)

    def copy(metrics):
        update = metrics["decisions"] // (8 * 32)
        if update in (2, 4):
            shutil.copytree(tmp_path / "whole", tmp_path / f"killed-{update}")

    whole = loop.train(config, tmp_path / "whole", progress=copy)
    for name in ("killed-2", "killed-4"):
        assert RunDirectory.open(tmp_path / name).stop_reason is None
        resumed = loop.train(config, tmp_path / name, resume=True)
        assert resumed == whole._replace(run=tmp_path / name)
        assert fingerprint(tmp_path / name) == fingerprint(tmp_path / "whole")
        ratios, again = (
            [(r["step"], r["validation_ratio"]) for r in run.metrics() if "validation_ratio" in r]
            for run in map(RunDirectory.open, (tmp_path / "whole", tmp_path / name))
        )
        assert ratios == again


def test_an_actor_goes_on_in_the_middle_of_its_episodes():
    parameters = Parameters(toys.learner().policy.vector(), 0)
    first, second = toys.actor(executors=(1, 3)), toys.actor(executors=(1, 3))
    first.act(parameters)
    second.restore(first.state())
    for _ in range(2):
        one, other = (a.act(parameters).samples.decisions for a in (first, second))
        np.testing.assert_array_equal(one.cost, other.cost)
        np.testing.assert_array_equal(one.log_probability, other.log_probability)


def test_an_actors_clusters_of_other_settings_are_refused():
    state = toys.actor(environments=4).state()
    with pytest.raises(CheckpointError, match="the clusters of actor 0 are not those"):
        toys.actor().restore(state)


def test_a_learner_goes_on_to_the_bit_and_refuses_what_is_not_its_own():
    acting, whole = toys.actor(), toys.learner()
    parameters = Parameters(whole.policy.vector(), 0)
    samples = [acting.act(parameters).samples for _ in range(2)]
    untouched = whole.state()
    whole.update([samples[0]], 0.2)
    resumed = toys.learner(vector=np.zeros_like(untouched["policy"]))
    resumed.restore(whole.state())
    for learner in (whole, resumed):
        learner.update([samples[1]], 0.4)
    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, resumed.state()[name], err_msg=name)
    with pytest.raises(CheckpointError, match="'normaliser' is absent"):
        resumed.restore({name: a for name, a in untouched.items() if name != "normaliser"})
    with pytest.raises(CheckpointError, match="'policy' is float32"):
        resumed.restore(untouched | {"policy": np.zeros(3, np.float32)})


# --- actors and learner at once


def test_a_run_goes_on_from_its_parameters_counters_and_position(config, tmp_path):
    config = msgspec.structs.replace(config, sync=False)
    loop.train(config, tmp_path / "run", **stop_at(3))
    before = RunDirectory.open(tmp_path / "run").latest_checkpoint()
    longer = msgspec.structs.replace(config, updates=before.step + 3, minutes=7.0)
    started = []
    original = Learner.restore

    class Watched(Learner):
        def restore(self, state):
            original(self, state)
            started.append(self.policy.vector())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Learner", Watched)
        outcome = loop.train(longer, tmp_path / "run", resume=True)
    np.testing.assert_array_equal(started[0], before.tensors["policy"])
    assert outcome.updates == before.step + 3
    assert outcome.decisions == outcome.updates * 8 * 32
    run = RunDirectory.open(tmp_path / "run")
    assert run.config(TrainConfig) == longer
    assert run.latest_checkpoint().metadata["generation"] == 1
    records = run.metrics()
    assert [r["step"] for r in records] == list(range(1, outcome.updates + 1))
    elapsed_s = [r["elapsed_s"] for r in records]
    assert elapsed_s == sorted(elapsed_s)


def test_a_damaged_newest_checkpoint_means_the_one_before_it_by_name(config, tmp_path, caplog):
    path = tmp_path / "run"
    loop.train(config, path, **stop_at(2))
    loop.train(config, path, resume=True, **stop_at(2))
    newest, before = checkpoint_path(path, 4), checkpoint_path(path, 2)
    tensors = next(newest.glob("*.safetensors"))
    os.truncate(tensors, tensors.stat().st_size // 2)
    loop.train(config, path, resume=True)
    (warning,) = [message for message in caplog.messages if "used instead" in message]
    assert str(newest) in warning
    assert str(before) in warning
    loop.train(config, tmp_path / "whole")
    assert fingerprint(path) == fingerprint(tmp_path / "whole")


def test_without_a_usable_checkpoint_there_is_an_error_and_no_fresh_start(config, tmp_path):
    path = tmp_path / "run"
    loop.train(config, path, **stop_at(1))
    for tensors in path.glob("checkpoints/*/*.safetensors"):
        os.truncate(tensors, 10)
    before = sorted(p.name for p in path.rglob("*"))
    with pytest.raises(CheckpointError, match="no checkpoint is intact"):
        loop.train(config, path, resume=True)
    assert sorted(p.name for p in path.rglob("*")) == before


def test_a_checkpoint_that_holds_no_learner_cannot_be_resumed(config, tmp_path):
    path = tmp_path / "run"
    loop.train(config, path, **stop_at(1))
    run = RunDirectory.open(path)
    checkpoint = run.latest_checkpoint()
    policy = {"policy": checkpoint.tensors["policy"]}
    run.save_checkpoint(checkpoint.step, policy, checkpoint.metadata)
    with pytest.raises(CheckpointError, match=r"cannot be resumed: tensor 'critic' is absent"):
        loop.train(config, path, resume=True)


def test_a_best_checkpoint_found_after_the_one_resumed_renews_patience(config, tmp_path):
    loop.train(config, tmp_path / "run", **stop_at(1))
    checkpoint = RunDirectory.open(tmp_path / "run").latest_checkpoint()
    learner = toys.learner()

    def position(ratio, stale, best_ratio):
        at, best = (
            checkpoint._replace(metadata=checkpoint.metadata | {"best_ratio": r, "stale": stale})
            for r in (ratio, best_ratio)
        )
        found = restored(config, learner, at, best)[0]
        return found.best_ratio, found.stale

    assert position(0.9, 3, 0.9) == (0.9, 3)
    assert position(0.9, 3, 0.8) == (0.8, 0)
    assert position(None, 0, 0.8) == (0.8, 0)


def test_settings_that_changed_are_named(config, tmp_path):
    path = tmp_path / "run"
    loop.train(config, path, **stop_at(1))
    learning = msgspec.structs.replace(config.learning, epochs=7)
    changed = msgspec.structs.replace(config, jobs=5, learning=learning, updates=99)
    with pytest.raises(ConfigError, match=r"\(jobs is 5, was 8; learning.epochs is 7, was 2\)"):
        loop.train(changed, path, resume=True)
    with pytest.raises(CheckpointError, match="there is no such run directory"):
        loop.train(config, tmp_path / "absent", resume=True)
    with pytest.raises(ConfigError, match="leave out init"):
        loop.train(config, path, resume=True, init=path)


# --- starting from a policy


def test_a_run_may_start_from_another_ones_policy_and_critic(config, tmp_path):
    loop.train(config, tmp_path / "first", **stop_at(1))
    start = RunDirectory.open(tmp_path / "first").latest_checkpoint()
    made = []

    class Watched(Learner):
        def restore_critic(self, state):
            super().restore_critic(state)
            made.append(self.state())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Learner", Watched)
        loop.train(
            msgspec.structs.replace(config, executors=5, seed=3),
            tmp_path / "second",
            init=tmp_path / "first",
            **stop_at(1),
        )
    for name in ("policy", "critic", "critic_scale"):
        np.testing.assert_array_equal(made[0][name], start.tensors[name])
    assert made[0]["adam_steps"] == 0

    other = msgspec.structs.replace(config, messages=True)
    with pytest.raises(ConfigError, match="its policy is without message passing, this run with"):
        loop.train(other, tmp_path / "third", init=tmp_path / "first")
    assert not (tmp_path / "third").exists()


# --- validation in a run


def test_the_best_checkpoint_is_kept_and_is_what_evaluation_takes(config, tmp_path, monkeypatch):
    ratios = iter([0.9, 0.7, 0.8, 0.85, 0.95, 0.99])

    def validate(self, vector, give_up=None):
        ratio = next(ratios)
        return Validation(ratio, ratio + 0.1, 1.0, 0.0)

    monkeypatch.setattr(Validator, "validate", validate)
    config = msgspec.structs.replace(config, validate_every_s=1.0)
    outcome = loop.train(config, tmp_path / "run")
    assert outcome.best_ratio == 0.7
    run = RunDirectory.open(tmp_path / "run")
    assert run.latest_checkpoint().step == 6
    assert read_policy(tmp_path / "run").step == run.best_checkpoint().step == 2
    assert read_policy(checkpoint_path(tmp_path / "run", 6)).step == 6
    validations = [r for r in run.metrics() if "validation_ratio" in r]
    assert [r["validation_ratio"] for r in validations] == [0.9, 0.7, 0.8, 0.85, 0.95, 0.99]
    assert [r["validation_best_ratio"] for r in validations] == [0.9, *[0.7] * 5]
    assert read_checkpoint(checkpoint_path(tmp_path / "run", 6)).metadata["best_ratio"] == 0.7


@pytest.mark.parametrize(
    ("limit", "reason", "updates"),
    [({"patience": 2}, "plateau", 4), ({"target_ratio": 0.7}, "target", 2)],
)
def test_a_plateau_or_a_target_ends_the_run(
    config, tmp_path, monkeypatch, limit, reason, updates
):  # fmt: skip
    ratios = iter([0.9, 0.7, 0.8, 0.85, 0.95, 0.99])
    monkeypatch.setattr(Validator, "validate", lambda *_: Validation(next(ratios), 1.0, 1.0, 0.0))
    config = msgspec.structs.replace(config, validate_every_s=1.0, **limit)
    outcome = loop.train(config, tmp_path / "run")
    assert (outcome.reason, outcome.updates) == (reason, updates)
    assert RunDirectory.open(tmp_path / "run").stop_reason == reason


def test_a_run_validates_beside_learning_and_once_more_at_its_end(config, tmp_path):
    config = msgspec.structs.replace(config, sync=False, validate_every_s=1e-3, updates=20)
    outcome = loop.train(config, tmp_path / "run")
    validations = [
        r for r in RunDirectory.open(tmp_path / "run").metrics() if "validation_ratio" in r
    ]
    assert validations[-1]["step"] == outcome.updates == 20
    assert outcome.best_ratio == min(r["validation_ratio"] for r in validations)
    best = min(validations, key=lambda r: r["validation_ratio"])
    assert read_policy(tmp_path / "run").step == best["step"]


def test_a_validation_that_is_complete_when_the_run_ends_counts(config, tmp_path, monkeypatch):
    calls = []

    def validate(self, vector, give_up):
        calls.append(vector)
        if len(calls) == 1:
            while not give_up():
                time.sleep(0.001)
            return Validation(0.5, 0.6, 1.0, 0.0)
        return Validation(0.9, 1.0, 1.0, 0.0)

    monkeypatch.setattr(Validator, "validate", validate)
    config = msgspec.structs.replace(config, sync=False, validate_every_s=1e-3)
    outcome = loop.train(config, tmp_path / "run")
    assert len(calls) == 2
    assert outcome.best_ratio == 0.5
    assert read_policy(tmp_path / "run").step == 1
    assert RunDirectory.open(tmp_path / "run").latest_checkpoint().step == 6
