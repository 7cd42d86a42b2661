"""Stop conditions, validation, synchronous runs and going on with a run."""

import hashlib
import threading

import msgspec
import numpy as np
import pytest
import toys

from ganger.errors import CheckpointError, ConfigError
from ganger.policy.checkpoint import read_policy
from ganger.training import loop
from ganger.training.config import TrainConfig
from ganger.training.run_directory import RunDirectory


def run_of(tmp_path, **settings):
    workload = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    return toys.config(workload=workload, **settings)


def digest(path):
    """Of everything that a run's newest checkpoint holds."""
    tensors = RunDirectory.open(path).latest_checkpoint().tensors
    text = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        if name.startswith("actor."):
            continue  # holds addresses; what comes of it is in the policy that follows
        text.update(name.encode() + array.tobytes())
    return text.hexdigest()


def stop_at(updates):
    """An event that asks a run to stop, and the progress callback that sets it."""
    stop = threading.Event()

    def progress(metrics):
        if metrics["updates"] == updates:
            stop.set()

    return stop, progress


def test_two_synchronous_runs_with_one_seed_are_the_same_to_the_bit(tmp_path):
    for name in ("a", "b"):
        loop.train(run_of(tmp_path, sync=True, updates=6, seed=5), tmp_path / name)
    loop.train(run_of(tmp_path, sync=True, updates=6, seed=6), tmp_path / "c")
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")
    metrics = RunDirectory.open(tmp_path / "a").metrics()
    assert max(record.get("lag_max", 0) for record in metrics) == 0


def test_a_synchronous_run_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path):
    config = run_of(tmp_path, sync=True, updates=9, seed=2)
    loop.train(config, tmp_path / "whole")
    stop, progress = stop_at(4)
    first = loop.train(config, tmp_path / "parts", progress=progress, stop=stop)
    assert (first.reason, first.updates) == ("stopped", 4)
    second = loop.train(config, tmp_path / "parts", resume=True)
    assert (second.reason, second.updates) == ("updates", 9)
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    run = RunDirectory.open(tmp_path / "parts")
    steps = [record["step"] for record in run.metrics() if "kl" in record]
    assert steps == list(range(1, 10))


def test_an_asynchronous_run_goes_on_with_learner_and_counters(tmp_path):
    config = run_of(tmp_path, updates=5)
    loop.train(config, tmp_path / "run")
    before = RunDirectory.open(tmp_path / "run").latest_checkpoint()
    longer = msgspec.structs.replace(config, updates=8)
    outcome = loop.train(longer, tmp_path / "run", resume=True)
    assert (outcome.updates, outcome.decisions) == (8, 8 * 8 * 32)
    run = RunDirectory.open(tmp_path / "run")
    after = run.latest_checkpoint()
    assert run.config(TrainConfig).updates == 8
    assert after.metadata["counters"]["resumed"] == 1
    assert after.metadata["counters"]["elapsed_s"] > before.metadata["counters"]["elapsed_s"]
    assert after.tensors["adam.step"] > before.tensors["adam.step"] > 0


def test_a_run_with_other_settings_is_not_resumed(tmp_path):
    config = run_of(tmp_path, updates=2)
    loop.train(config, tmp_path / "run")
    other = msgspec.structs.replace(config, move_delay_s=1.0)
    with pytest.raises(ConfigError, match=r"move_delay_s 0\.0, not 1\.0"):
        loop.train(other, tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match="no such run"):
        loop.train(config, tmp_path / "nowhere", resume=True)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_newest_checkpoint_means_the_one_before_with_a_warning(tmp_path, caplog, damage):
    config = run_of(tmp_path, sync=True, updates=4)
    stop, progress = stop_at(2)
    loop.train(config, tmp_path / "run", progress=progress, stop=stop)
    loop.train(config, tmp_path / "run", resume=True)
    whole = digest(tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*/*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 4
    newest.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
    loop.train(config, tmp_path / "run", resume=True)
    assert "trying the one before" in caplog.text
    assert digest(tmp_path / "run") == whole
    for file in (tmp_path / "run" / "checkpoints").glob("step-*/*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint is intact"):
        loop.train(config, tmp_path / "run", resume=True)


def test_validation_finds_the_best_checkpoint_and_stops_at_the_target(tmp_path):
    config = run_of(tmp_path, validate_every_s=0.2, target_ratio=1.5, minutes=1.0)
    outcome = loop.train(config, tmp_path / "run")
    assert outcome.reason == "target"
    run = RunDirectory.open(tmp_path / "run")
    validations = [record for record in run.metrics() if "validation_argmax" in record]
    assert validations
    best = min(validations, key=lambda r: min(r["validation_argmax"], r["validation_sampled"]))
    assert run.best_checkpoint().step == best["validated_step"]
    assert read_policy(tmp_path / "run").step == best["validated_step"]
    assert 0 < best["validation_heuristic"] <= 1.05


def test_a_run_that_does_not_get_better_stops(tmp_path):
    learning = msgspec.structs.replace(
        toys.config().learning, learning_rate=1e-12, final_learning_rate=1e-12
    )
    config = run_of(tmp_path, validate_every_s=0.05, patience=2, minutes=1.0, learning=learning)
    outcome = loop.train(config, tmp_path / "run")
    assert outcome.reason == "plateau"


def test_fine_tuning_starts_from_the_policy_and_the_critic(tmp_path):
    config = run_of(tmp_path, updates=3)
    loop.train(config, tmp_path / "first")
    frozen = msgspec.structs.replace(
        config,
        updates=1,
        seed=9,
        learning=msgspec.structs.replace(
            config.learning, learning_rate=1e-12, final_learning_rate=1e-12
        ),
    )
    loop.train(frozen, tmp_path / "second", init=tmp_path / "first")
    first = read_policy(tmp_path / "first")
    second = RunDirectory.open(tmp_path / "second").latest_checkpoint()
    np.testing.assert_allclose(second.tensors["policy"], first.vector, atol=1e-8)
    assert second.tensors["adam.step"] < 10
    with pytest.raises(CheckpointError, match="without messages"):
        loop.train(
            msgspec.structs.replace(frozen, messages=True),
            tmp_path / "third",
            init=tmp_path / "first",
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sync": True}, "sync needs decisions or updates"),
        ({"sync": True, "updates": 3, "patience": 2}, "sync validates at its end only"),
        ({"updates": 0}, "updates is 0"),
        ({"patience": 0}, "patience is 0"),
        ({"target_ratio": -1.0}, "target_ratio is -1.0"),
        ({"validate_every_s": 0.0}, "validate_every_s is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        toys.config(**settings)
