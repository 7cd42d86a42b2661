"""Checkpoints: a policy on disk, and everything needed to tell whether it can be used.

    CHECKPOINT/checkpoint.json                 step, metadata, the tensors' file, a checksum of both
    CHECKPOINT/tensors-0123456789abcdef.safetensors
    RUN/checkpoints/step-000000123/            a checkpoint of a training run

Reading one never executes anything. Files are written under a temporary name, flushed to the disk
and renamed, so a checkpoint is there whole or not at all, whenever the process is killed.
"""

import hashlib
import json
import logging
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from ganger.errors import CheckpointError
from ganger.policy import layout
from ganger.policy.features import (
    JOB_FEATURES,
    POLICY_GLOBAL_FEATURES,
    POLICY_GLOBALS,
    STAGE_FEATURES,
)
from ganger.policy.scheduler import PolicyScheduler

_log = logging.getLogger(__name__)

PRETRAINED = {"general": Path(__file__).parent / "pretrained" / "general"}
"""Policies that come with Ganger, by name. A path of that name is taken instead if there is one."""

TEMPORARY = ".unfinished-"
"""How the names of files begin that are not written to their end."""

_KINDS = re.compile(r"float(16|32|64)|u?int(8|16|32|64)|bool")  # what numpy and safetensors share


# --- a policy


class TrainedOn(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy was trained on."""

    workload: str
    executors: int | tuple[int, ...]
    jobs: int
    interarrival_s: float | tuple[float, ...] | None
    move_delay_s: float
    reconsider: bool = False
    work_conserving: bool = False
    part: str = "train"
    objective: str = "mean"
    weights: dict[str, float] = {}


class SavedPolicy(NamedTuple):
    """A policy as it was read from a checkpoint."""

    vector: NDArray[np.float32]
    messages: bool
    trained_on: TrainedOn
    step: int
    path: Path
    """Of the checkpoint, also where a run directory was asked for."""

    def scheduler(self, *, sample: bool = False) -> PolicyScheduler:
        """A scheduler that takes the most probable action, or draws one from the policy."""
        return PolicyScheduler(self.vector, messages=self.messages, sample=sample)


def load_policy(path: str | Path, *, sample: bool = False) -> PolicyScheduler:
    """The scheduler in a checkpoint, or in the best intact checkpoint of a run directory.

    Args:
        path: a checkpoint or a run directory, or a name in `PRETRAINED`.
        sample: draw actions from the policy; else it takes the most probable one.

    Raises:
        CheckpointError: if there is none, or none that this version of Ganger can use.
    """
    return read_policy(path).scheduler(sample=sample)


def read_policy(path: str | Path) -> SavedPolicy:
    """Likewise, with what is known of it."""
    checkpoint = _find_checkpoint(Path(path))
    about, where = checkpoint.metadata, checkpoint.path
    messages = about.get("messages")
    if not isinstance(messages, bool):
        raise CheckpointError(f"{where}: holds no policy; its metadata has no 'messages'")
    if about.get("layout") != fingerprint(messages):
        raise CheckpointError(
            f"{where}: its policy sees other features or has another network than this version of "
            "Ganger; train it again, or use the version that its run's provenance.json names"
        )
    vector = checkpoint.tensors.get("policy")
    size = layout.vector_size(messages)
    if vector is None or vector.dtype != np.float32 or vector.shape != (size,):
        found = "is absent" if vector is None else f"is {vector.dtype}{list(vector.shape)}"
        raise CheckpointError(f"{where}: tensor 'policy' {found}; expected float32[{size}]")
    if not np.isfinite(vector).all():
        raise CheckpointError(f"{where}: tensor 'policy' has values that are not finite")
    try:
        trained_on = msgspec.convert(about, TrainedOn)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{where}: metadata: {error}") from None
    aligned = layout.aligned_zeros(size)
    aligned[:] = vector
    return SavedPolicy(aligned, messages, trained_on, checkpoint.step, where)


def fingerprint(messages: bool) -> str:
    """What a policy's vector means: which features it sees, and which weights are where.

    A feature is its whole description: with another unit or scale it is another feature.
    """
    described = {
        "features": [STAGE_FEATURES, JOB_FEATURES, POLICY_GLOBAL_FEATURES],
        "blocks": [(block.name, block.shape, block.start) for block in layout.blocks(messages)],
        "levels": [layout.LEVELS, layout.LEVEL_WIDTH],
        "scales": [layout.SLOPE, layout.JOB_SUM_SCALE, layout.MESSAGE_SCALE],
        "globals": POLICY_GLOBALS,
    }
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]


def _find_checkpoint(path: Path) -> "Checkpoint":
    if not path.exists():
        path = PRETRAINED.get(str(path), path)
    if (path / "checkpoint.json").is_file():
        return read_checkpoint(path)
    if (path / "config.json").is_file() or (path / "checkpoints").is_dir():
        return first_intact(path, best_first(path))
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such run directory or checkpoint")
    raise CheckpointError(f"{path}: is neither a run directory nor a checkpoint")


# --- a checkpoint


class Checkpoint(NamedTuple):
    """Arrays and what belongs to them."""

    step: int
    tensors: dict[str, NDArray[Any]]
    metadata: dict[str, Any]
    path: Path


def write_checkpoint(
    path: Path, step: int, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Write a checkpoint to the directory `path`, replacing one that is there.

    The rename of checkpoint.json is the moment at which the checkpoint exists; the tensors' file is
    named by its content, so an older checkpoint stays whole until then.

    Raises:
        TypeError: if an array's type has no safetensors equivalent, or metadata is not JSON.
    """
    for name, array in tensors.items():
        if not _KINDS.fullmatch(array.dtype.name):
            raise TypeError(f"tensor {name} is {array.dtype}; expected numbers or bool")
    # Not ascontiguousarray, which turns a scalar into an array of one.
    packed = safetensors.numpy.save({n: np.asarray(a, order="C") for n, a in tensors.items()})
    tensors_file = f"tensors-{hashlib.sha256(packed).hexdigest()[:16]}.safetensors"
    try:
        # As it will be read: with keys that are strings and tuples that are lists.
        plain = json.loads(json.dumps(metadata, allow_nan=False))
    except ValueError as error:
        raise TypeError(f"metadata holds what JSON cannot: {error}") from None
    document = {
        "format": "ganger.checkpoint",
        "version": 1,
        "step": step,
        "tensors": tensors_file,
        "metadata": plain,
    }

    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / tensors_file, packed)
    write_json(path / "checkpoint.json", {"sha256": _checksum(packed, document)} | document)
    for old in path.glob("*.safetensors"):
        if old.name != tensors_file:
            old.unlink()
    _sync_directory(path.parent)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify every byte of it; its arrays may be written to.

    Raises:
        CheckpointError: if it is absent, cut short or altered.
    """
    document = read_json(path / "checkpoint.json")
    if document.get("format") != "ganger.checkpoint":
        raise CheckpointError(f"{path}: checkpoint.json is not a checkpoint's")
    if document.get("version") != 1:
        raise CheckpointError(
            f"{path}: checkpoint version {document.get('version')}; this Ganger reads version 1"
        )
    name = str(document.get("tensors"))
    try:
        packed = (path / Path(name).name).read_bytes()
        if document.pop("sha256", None) != _checksum(packed, document):
            raise CheckpointError(f"{path}: the checksum does not match; the checkpoint is damaged")
        arrays = safetensors.numpy.load(packed)
        return Checkpoint(
            step=int(document["step"]),
            tensors={name: array.copy() for name, array in arrays.items()},
            metadata=dict(document["metadata"]),
            path=path,
        )
    except OSError as error:
        raise CheckpointError(f"{path}: {name} cannot be read: {error.strerror}") from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: is damaged: {error!r}") from None


def _checksum(packed: bytes, document: Mapping[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(packed + canonical.encode()).hexdigest()


# --- the checkpoints of a run


def checkpoint_path(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of that step."""
    return run / "checkpoints" / f"step-{step:09d}"


def checkpoint_steps(run: Path) -> list[int]:
    """The steps that have a checkpoint, ascending; whether each is intact shows on reading."""
    return [
        step
        for step in step_directories(run)
        if (checkpoint_path(run, step) / "checkpoint.json").exists()
    ]


def step_directories(run: Path) -> list[int]:
    """Likewise, with those that a killed process left unfinished."""
    directory = run / "checkpoints"
    names = os.listdir(directory) if directory.is_dir() else []
    found = map(re.compile(r"step-(\d{9,})").fullmatch, names)
    return sorted(int(match[1]) for match in found if match)


def marked_best(run: Path) -> list[int]:
    """Steps marked as best, the latest mark last; those without a checkpoint left out."""
    file = run / "checkpoints" / "best.json"
    if not file.exists():
        return []
    try:
        steps = read_json(file)["steps"]
        existing = set(checkpoint_steps(run))
        return [step for step in steps if step in existing]
    except (CheckpointError, KeyError, TypeError) as error:
        _log.warning("%s: cannot be read, so no checkpoint counts as best: %s", file, error)
        return []


def best_first(run: Path) -> list[int]:
    """All steps with a checkpoint: those marked as best, the latest mark first, then others."""
    marked = marked_best(run)[::-1]
    return [*marked, *(s for s in reversed(checkpoint_steps(run)) if s not in marked)]


def first_intact(run: Path, steps: Iterable[int]) -> Checkpoint:
    """The first of these checkpoints that is intact.

    A warning names each one passed over, and the one taken instead.

    Raises:
        CheckpointError: if there is none.
    """
    passed_over: list[CheckpointError] = []
    for step in steps:
        try:
            checkpoint = read_checkpoint(checkpoint_path(run, step))
        except CheckpointError as error:
            passed_over.append(error)
            continue
        for damage in passed_over:
            _log.warning("%s; %s is used instead", damage, checkpoint.path)
        return checkpoint
    if not passed_over:
        raise CheckpointError(f"{run}: the run has no checkpoint yet")
    raise CheckpointError(f"{run}: no checkpoint is intact; the last one: {passed_over[-1]}")


# --- files


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, whenever the process or the machine dies."""
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object likewise."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: if it cannot be read or is none.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is not JSON; the file is damaged") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds no JSON object; the file is damaged")
    return value


def _sync_directory(path: Path) -> None:
    """Make renames in a directory last; where directories cannot be opened they need not be."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
