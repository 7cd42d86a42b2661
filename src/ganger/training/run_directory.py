"""The run directory: what a training run leaves on disk, readable whenever the run was killed.

    config.json        the settings
    provenance.json    versions, machine, command line, seed, time
    metrics.jsonl      one line per record
    events.out.*       the same for TensorBoard, where it is installed
    checkpoints/       step-000000123/ with checkpoint.json and its tensors; best.json
    stop_reason.json   why the run ended; absent while it runs or when it was killed

Every file but the metrics is written under a temporary name, flushed to the disk and renamed, so
it is there whole or not at all. Of the metrics at most the last line is cut, and skipped when read.
"""

import errno
import importlib.metadata
import json
import logging
import math
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

import ganger
from ganger.config import Config
from ganger.errors import CheckpointError, ConfigError, TrainingError
from ganger.evaluation.episodes import usable_cores
from ganger.policy.checkpoint import (
    TEMPORARY,
    Checkpoint,
    best_first,
    checkpoint_path,
    checkpoint_steps,
    first_intact,
    marked_best,
    read_json,
    step_directories,
    write_atomically,
    write_checkpoint,
    write_json,
)

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_log = logging.getLogger(__name__)

C = TypeVar("C", bound=Config)


# --- the run directory


class RunDirectory:
    """A run on disk: `create` a new one, `open` one to read it, `resume` one to go on with it."""

    def __init__(self, path: Path, *, keep: int = 5) -> None:
        """For the class methods, which check what is on disk first."""
        self.path = path
        self._keep = keep
        self._metrics: BinaryIO | None = None
        self._events: SummaryWriter | None = None
        self._events_from: int | None = 0  # a step; None once TensorBoard was looked for

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        config: Config,
        seed: int,
        keep: int = 5,
    ) -> Self:
        """Start a run in a new or empty directory.

        Args:
            path: the directory.
            config: every setting of the run.
            seed: what its random streams start from.
            keep: how many of the last checkpoints to keep, and as many of the last best ones.

        Raises:
            ConfigError: if the directory holds anything, or cannot be written to, or a setting does
                not survive being written and read.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            present = _names(path)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be a run directory: {error.strerror}") from None
        if "config.json" in present:
            raise ConfigError(f"{path}: holds a run already; resume it or choose another directory")
        # config.json comes last and makes it a run: with less, one was killed before it began.
        foreign = [n for n in present if n != "provenance.json" and not n.startswith(TEMPORARY)]
        if foreign:
            raise ConfigError(
                f"{path}: holds {min(foreign)} and is not a run; choose an empty or new directory"
            )
        text = _encoded(path, config)
        run = cls(path, keep=keep)
        try:
            _remove_unfinished(path)
            write_json(path / "provenance.json", _provenance(seed))
            write_atomically(path / "config.json", text)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written to: {error.strerror}") from None
        return run

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a run to read it; changes nothing on disk.

        Raises:
            CheckpointError: if the directory is absent or not a run.
        """
        path = Path(path)
        if not path.is_dir():
            raise CheckpointError(f"{path}: there is no such run directory")
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path}: is not a run directory; config.json is missing")
        return cls(path)

    @classmethod
    def resume(cls, path: str | Path, *, keep: int = 5) -> tuple[Self, Checkpoint]:
        """Open a run that has ended in any way, to go on from its newest intact checkpoint.

        What the run recorded after that checkpoint stays in metrics.jsonl, and `metrics` leaves
        it out: the resumed run goes through those steps again.

        Raises:
            CheckpointError: if this is not a run, or none of its checkpoints is intact.
        """
        run = cls.open(path)
        run._keep = keep
        checkpoint = run.latest_checkpoint()
        for step in step_directories(run.path):
            if step > checkpoint.step:
                # Damaged, or it would be the newest intact one: it must not crowd out new ones.
                damaged = run._checkpoint_path(step)
                aside = damaged.with_name(f"damaged-{damaged.name}")
                shutil.rmtree(aside, ignore_errors=True)
                damaged.rename(aside)
        for directory in (run.path, run.path / "checkpoints", checkpoint.path):
            _remove_unfinished(directory)
        (run.path / "stop_reason.json").unlink(missing_ok=True)
        run._events_from = checkpoint.step + 1
        run._append({"resumed_after_step": checkpoint.step})
        return run, checkpoint

    # --- settings

    def config(self, type: type[C]) -> C:
        """The run's settings.

        Raises:
            CheckpointError: if they cannot be read as this type.
        """
        file = self.path / "config.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=type)
        except OSError as error:
            raise CheckpointError(f"{file}: cannot be read: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file}: {error}") from None

    def write_config(self, config: Config) -> None:
        """Replace the settings: a resumed run may have other limits.

        Raises:
            ConfigError: if a setting does not survive being written and read.
        """
        file = self.path / "config.json"
        text = _encoded(self.path, config)
        with _writing(file):
            write_atomically(file, text)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the run comes from: versions, machine, command line, seed, start."""
        return read_json(self.path / "provenance.json")

    # --- metrics

    def record(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl, and the numbers of it to TensorBoard's events.

        Numbers that are not finite are written as null. A step may have several records.
        """
        self._append({"step": step} | dict(metrics))
        if self._events_from is not None and self._events is None:
            self._open_events()
        if self._events is not None:
            for name, value in metrics.items():
                if isinstance(value, bool | int | float | np.number):
                    self._events.add_scalar(name, float(value), step)

    def metrics(self) -> list[dict[str, Any]]:
        """All records in order, less what a resumed run went through again."""
        records: list[dict[str, Any]] = []
        for record in _json_lines(self.path / "metrics.jsonl"):
            if (after := record.get("resumed_after_step")) is not None:
                records = [earlier for earlier in records if earlier["step"] <= after]
            elif "step" in record:
                records.append(record)
        return records

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(_plain(record), allow_nan=False).encode() + b"\n"
        file = self.path / "metrics.jsonl"
        with _writing(file):
            if self._metrics is None:
                _cut_unfinished_line(file)
                self._metrics = file.open("ab", buffering=0)
            # Unbuffered: whole lines on disk at once, and nothing left to fail when it is closed.
            if self._metrics.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open_events(self) -> None:
        purge_step, self._events_from = self._events_from, None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            _log.warning("No TensorBoard events: pip install 'ganger[train]' brings tensorboard")
            return
        self._events = SummaryWriter(self.path, purge_step=purge_step or None, flush_secs=10)

    # --- checkpoints

    def save_checkpoint(
        self,
        step: int,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, Any],
        *,
        best: bool = False,
    ) -> Path:
        """Write a checkpoint, and remove those neither among the last nor among the best ones.

        Raises:
            TrainingError: if it cannot be written; older ones stay as they are.
        """
        path = self._checkpoint_path(step)
        with _writing(path):
            write_checkpoint(path, step, tensors, metadata)
        if best:
            self.mark_best(step)
        else:
            self._prune()
        return path

    def mark_best(self, step: int) -> None:
        """Say that the checkpoint of this step is better than those marked before."""
        if not (self._checkpoint_path(step) / "checkpoint.json").is_file():
            raise CheckpointError(f"{self.path}: no checkpoint of step {step} to mark as best")
        marked = [other for other in marked_best(self.path) if other != step]
        file = self.path / "checkpoints" / "best.json"
        with _writing(file):
            write_json(file, {"steps": [*marked, step][-self._keep :]})
        self._prune()

    def checkpoint_steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending; whether each is intact shows on reading."""
        return checkpoint_steps(self.path)

    def latest_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that is intact; a warning names each damaged one passed over.

        Raises:
            CheckpointError: if there is none.
        """
        return first_intact(self.path, reversed(self.checkpoint_steps()))

    def best_checkpoint(self) -> Checkpoint:
        """The checkpoint last marked as best, or where none is marked or intact, the newest.

        Raises:
            CheckpointError: if there is no intact checkpoint at all.
        """
        return first_intact(self.path, best_first(self.path))

    def _checkpoint_path(self, step: int) -> Path:
        return checkpoint_path(self.path, step)

    def _prune(self) -> None:
        kept = {*self.checkpoint_steps()[-self._keep :], *marked_best(self.path)}
        for step in step_directories(self.path):
            if step not in kept:
                shutil.rmtree(self._checkpoint_path(step), ignore_errors=True)

    # --- the end

    def stop(self, reason: str, *, step: int) -> None:
        """Record why the run ended, and close its files."""
        file = self.path / "stop_reason.json"
        with _writing(file):
            write_json(file, {"reason": reason, "step": step, "ended_utc": _now()})
        self.close()

    @property
    def stop_reason(self) -> str | None:
        """Why the run ended; None while it runs, or when it was killed."""
        file = self.path / "stop_reason.json"
        return str(read_json(file).get("reason")) if file.exists() else None

    def close(self) -> None:
        """Close the files; nothing is recorded after this."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- provenance


def machine() -> dict[str, Any]:
    """What figures were measured with."""
    return {
        "ganger": ganger.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("numpy", "numba", "msgspec", "torch")},
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": usable_cores(),
    }


def _provenance(seed: int) -> dict[str, Any]:
    about = machine() | {"command": sys.argv, "seed": seed, "started_utc": _now()}
    if commit := _installed_commit():
        about["commit"] = commit
    return about


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _installed_commit() -> str | None:
    """The commit that pip installed Ganger from, where it was a version control address."""
    try:
        origin = importlib.metadata.distribution("ganger").read_text("direct_url.json")
        return str(json.loads(origin or "{}")["vcs_info"]["commit_id"])
    except (importlib.metadata.PackageNotFoundError, KeyError, ValueError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- files


def _encoded(path: Path, config: Config) -> bytes:
    """Settings as JSON, which has no NaN and no infinity."""
    text = msgspec.json.encode(config)
    try:
        survives = msgspec.json.decode(text, type=type(config)) == config
    except msgspec.ValidationError:
        survives = False
    if not survives:
        raise ConfigError(f"{path}: a setting is not a finite number: {config}")
    return msgspec.json.format(text) + b"\n"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A full disk ends a run with one line that says so."""
    try:
        yield
    except OSError as error:
        raise TrainingError(f"{path}: cannot be written: {error.strerror}") from error


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines, less a last line that was cut."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            yield value
        else:
            _log.warning("%s:%d: is not a JSON object; skipped", path, number)


def _cut_unfinished_line(path: Path) -> None:
    """Cut what a killed process wrote after the last whole line."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)


def _plain(value: Any) -> Any:
    """A value as JSON takes it: numpy's numbers as Python's, null for what is not finite."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def _remove_unfinished(directory: Path) -> None:
    for leftover in directory.glob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)
