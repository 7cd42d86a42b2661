"""Checkpoints: what is written comes back, and what cannot be used says why."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ganger import streams
from ganger.errors import CheckpointError
from ganger.policy.checkpoint import (
    checkpoint_path,
    fingerprint,
    load_policy,
    read_checkpoint,
    read_policy,
    write_checkpoint,
    write_json,
)
from ganger.policy.layout import initial_vector, vector_size
from ganger.simulator.simulate import Cluster, simulate
from ganger.streams import Stream
from ganger.workload import load_source, random_workload


def flip_a_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def metadata(messages=False):
    return {
        "messages": messages,
        "layout": fingerprint(messages),
        "workload": "synthetic",
        "executors": 10,
        "jobs": 5,
        "interarrival_s": 20.0,
        "move_delay_s": 2.0,
        "decisions": 1000,
    }


def vector(seed=0, messages=False):
    return initial_vector(streams.rng(seed, Stream.LEARNER), messages)


def write_run(path, *steps):
    for step in steps:
        write_checkpoint(checkpoint_path(path, step), step, {"policy": vector(step)}, metadata())
    (path / "config.json").write_text("{}")


# --- the format


def test_any_flipped_bit_in_any_file_is_found(tmp_path):
    path = tmp_path / "checkpoint"
    write_checkpoint(path, 3, {"a": np.arange(3, dtype=np.float32)}, {"ratio": 0.25})
    names = os.listdir(path)
    assert len(names) == 2
    for name in names:
        file = path / name
        whole = file.read_bytes()
        for position in range(len(whole)):
            if whole[position : position + 1].isspace():
                continue  # JSON between its tokens, and the padding of safetensors
            flip_a_bit(file, position)
            with pytest.raises(CheckpointError):
                read_checkpoint(path)
        file.write_bytes(whole)
        for cut in range(0, len(whole) - 1, 7):
            file.write_bytes(whole[:cut])
            with pytest.raises(CheckpointError):
                read_checkpoint(path)
        file.write_bytes(whole)
    assert read_checkpoint(path).metadata == {"ratio": 0.25}


def test_a_checkpoint_of_a_newer_format_says_so(tmp_path):
    write_checkpoint(tmp_path / "c", 1, {}, {})
    file = tmp_path / "c" / "checkpoint.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))

    with pytest.raises(CheckpointError, match="checkpoint version 2; this Ganger reads version 1"):
        read_checkpoint(tmp_path / "c")


def test_a_checkpoint_cannot_name_a_file_outside_its_directory(tmp_path):
    write_checkpoint(tmp_path / "c", 1, {"policy": np.zeros(10, np.float32)}, {})
    (stolen,) = (tmp_path / "c").glob("*.safetensors")
    stolen.rename(tmp_path / stolen.name)
    file = tmp_path / "c" / "checkpoint.json"
    file.write_text(file.read_text().replace(stolen.name, f"../{stolen.name}"))

    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "c")


# --- policies


@pytest.mark.parametrize("messages", [False, True])
def test_a_policy_comes_back_with_what_it_was_trained_on(tmp_path, messages):
    weights = vector(7, messages)
    write_checkpoint(tmp_path / "c", 12, {"policy": weights}, metadata(messages))

    policy = read_policy(tmp_path / "c")

    assert (policy.vector == weights).all()
    assert policy.messages is messages
    assert policy.step == 12
    assert policy.trained_on.executors == 10
    assert policy.trained_on.workload == "synthetic"
    assert str(policy.scheduler()) == "learned:argmax"
    assert str(load_policy(tmp_path / "c", sample=True)) == "learned:sampled"


def test_a_loaded_policy_schedules_and_the_two_modes_differ(tmp_path):
    write_checkpoint(tmp_path, 1, {"policy": vector()}, metadata())
    workload = random_workload(load_source("synthetic"), jobs=4, interarrival_s=5.0, seed=0)

    def mean_jct_s(sample):
        scheduler = load_policy(tmp_path, sample=sample)
        return simulate(Cluster(executors=6), workload, scheduler).mean_jct_s

    assert mean_jct_s(False) == mean_jct_s(False)
    assert mean_jct_s(True) == mean_jct_s(True)
    assert mean_jct_s(True) != mean_jct_s(False)


def test_of_a_run_the_newest_intact_checkpoint_is_taken_with_a_warning(tmp_path, caplog):
    write_run(tmp_path, 1, 2, 3)
    assert read_policy(tmp_path).step == 3

    flip_a_bit(checkpoint_path(tmp_path, 3) / "checkpoint.json", 30)
    policy = read_policy(tmp_path)

    assert policy.step == 2
    assert policy.path == checkpoint_path(tmp_path, 2)
    (warning,) = caplog.messages
    assert "step-000000003" in warning
    assert warning.endswith("step-000000002 is used instead")


def test_of_a_run_the_checkpoint_marked_best_is_taken_and_any_other_by_its_path(tmp_path):
    write_run(tmp_path, 1, 2, 3)
    write_json(tmp_path / "checkpoints" / "best.json", {"steps": [1, 2]})

    assert read_policy(tmp_path).step == 2
    assert read_policy(checkpoint_path(tmp_path, 3)).step == 3


def test_what_is_no_run_and_no_checkpoint_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="absent: there is no such run directory"):
        load_policy(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="neither a run directory nor a checkpoint"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        load_policy(tmp_path)


def refused(tmp_path, match, tensors=None, **changed):
    about = {k: v for k, v in (metadata() | changed).items() if v is not None}
    write_checkpoint(tmp_path, 1, {"policy": vector()} if tensors is None else tensors, about)
    with pytest.raises(CheckpointError, match=match):
        load_policy(tmp_path)


def test_a_policy_of_other_features_or_another_network_is_refused(tmp_path):
    refused(tmp_path, "sees other features or has another network", layout="0123456789abcdef")
    refused(tmp_path, "sees other features or has another network", layout=None)
    refused(tmp_path, "sees other features or has another network", messages=True)


def test_a_checkpoint_without_a_usable_policy_is_refused(tmp_path):
    size = vector_size(False)
    expected = rf"expected float32\[{size}\]"
    refused(tmp_path, "its metadata has no 'messages'", messages=None)
    refused(tmp_path, f"'policy' is absent; {expected}", tensors={})
    refused(tmp_path, f"is float64.*{expected}", tensors={"policy": vector().astype(np.float64)})
    refused(tmp_path, f"is float32.*{expected}", tensors={"policy": vector()[:-1]})
    broken = vector()
    broken[3] = np.nan
    refused(tmp_path, "values that are not finite", tensors={"policy": broken})
    refused(tmp_path, "missing required field `executors`", executors=None)
    refused(tmp_path, "Expected `int`, got `str`", jobs="many")


def test_a_feature_of_another_scale_is_another_feature(monkeypatch):
    before = fingerprint(False), fingerprint(True)
    assert before[0] != before[1]
    monkeypatch.setattr("ganger.policy.checkpoint.STAGE_FEATURES", ("demand: executors / 5",))
    assert fingerprint(False) not in before


def test_loading_a_policy_needs_no_torch(tmp_path):
    write_run(tmp_path, 1)
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import ganger\n"
        f"print(ganger.load_policy({str(tmp_path)!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "learned:argmax\n"
