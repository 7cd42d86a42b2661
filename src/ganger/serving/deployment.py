"""Which scheduler decides, in a file: a command changes it, and services and drivers watch it.

A change takes effect without a decision being missed: the new scheduler's process is ready before
it is asked. What is not good is said, and the scheduler before goes on.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ganger.errors import ConfigError, GangerError
from ganger.serving.guard import Guard
from ganger.serving.process import SchedulerProcess, Setting

_POLL_S = 1.0
_LARGEST = 1 << 16


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides."""

    scheduler: str
    """As `ganger.load_scheduler` takes it."""
    previous: str | None = None
    """What decided before, for a rollback."""
    candidate: str | None = None
    """What decides a share of the rounds, to be tried."""
    share: float = 0.0
    """Of the rounds, that the candidate decides."""


def is_deployment(name: str) -> bool:
    """Whether a scheduler's name is the path of such a file."""
    return name.endswith(".json")


def read_deployment(path: Path) -> Deployment:
    """What a file says.

    Raises:
        ConfigError: it cannot be read, or makes no sense.
    """
    try:
        data = path.read_bytes()[: _LARGEST + 1]
        found = msgspec.json.decode(data, type=Deployment)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no deployment: {error}") from None
    if not 0 <= found.share <= 1:
        raise ConfigError(f"{path}: share is {found.share}; expected 0 to 1")
    return found


def write_deployment(path: Path, deployment: Deployment) -> None:
    """Change it, at once and whole.

    Raises:
        ConfigError: it cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(deployment)) + b"\n")
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


class Comparison(NamedTuple):
    """How a candidate did on the same windows of a log as what decides now."""

    windows: int
    ratio: float
    """Of mean completion times, candidate's to the other's, mean over windows."""
    error: float
    """Its standard error; 0 of one window."""

    @property
    def good(self) -> bool:
        """Whether it is not worse by more than the standard error."""
        return self.ratio <= 1 + self.error


def compared(jct_s: np.ndarray) -> Comparison:
    """From completion times [candidate and current, window, job]."""
    means = jct_s.mean(axis=2)
    ratios = means[0] / means[1]
    error = float(ratios.std(ddof=1) / np.sqrt(len(ratios))) if len(ratios) > 1 else 0.0
    return Comparison(len(ratios), float(ratios.mean()), error)


@contextlib.contextmanager
def watched(path: Path, guard: Guard, sample: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Follow a deployment file while a guard is in use; the guard asks what it says already."""
    stop = threading.Event()
    watch = _Watch(path, guard, sample, say)
    thread = threading.Thread(target=watch.run, args=(stop,), name="deployment", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Watch:
    def __init__(self, path: Path, guard: Guard, sample: bool, say: Callable[[str], None]) -> None:
        self._path, self._guard, self._sample, self._say = path, guard, sample, say
        self._now = Deployment(scheduler=guard.process.setting.scheduler)
        self._seen: tuple[int, int] | None = None

    def run(self, stop: threading.Event) -> None:
        while True:
            with contextlib.suppress(OSError):
                status = self._path.stat()
                seen = (status.st_mtime_ns, status.st_ino)
                if seen != self._seen:
                    self._seen = seen
                    self._follow()
            if stop.wait(_POLL_S):
                return

    def _follow(self) -> None:
        try:
            wanted = read_deployment(self._path)
            if wanted.scheduler != self._now.scheduler:
                self._guard.replace(self._ready(wanted.scheduler)).close()
                self._say(f"{wanted.scheduler} decides from now on")
            before = (self._now.candidate, self._now.share)
            if (wanted.candidate, wanted.share) != before:
                candidate = None if wanted.candidate is None else self._ready(wanted.candidate)
                self._guard.try_out(candidate, wanted.share)
                if candidate is not None:
                    self._say(f"{wanted.candidate} decides {wanted.share:.0%} of the rounds")
            self._now = wanted
        except GangerError as error:
            self._say(f"{self._path}: not followed: {error}")

    def _ready(self, scheduler: str) -> SchedulerProcess:
        process = SchedulerProcess(Setting(scheduler, self._sample))
        try:
            process.wait()
        except GangerError:
            process.close()
            raise
        return process
