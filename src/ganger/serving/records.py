"""What a driver leaves behind: every decision, and every job that it saw to its end.

    DIR/decisions.jsonl   a line a round: what was seen, what was answered, by whom and how fast
    DIR/jobs.jobs.jsonl   a workload: the jobs as they arrived, with what their tasks really took
    DIR/began.json        Unix time from which the workload's arrivals count

The second is what `ganger simulate`, `evaluate` and `train` read.
"""

import threading
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from ganger.errors import ConfigError
from ganger.serving.guard import Answer
from ganger.simulator.observation import Observation

DECISIONS = "decisions.jsonl"
JOBS = "jobs.jobs.jsonl"
BEGAN = "began.json"
_HEADER = b'{"format":"ganger.jobs","version":1}\n'


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log of decisions."""

    at_s: float
    """Unix time."""
    answer: Answer
    outcome: str
    """acted; shadow or dry-run, where nothing was changed; stale, where it came too late."""
    observation: Observation | None = None


class SeenStage(msgspec.Struct, frozen=True):
    """A stage of a job that has ended."""

    id: str
    parents: tuple[str, ...]
    durations_s: tuple[float, ...]
    """Of each of its tasks."""
    name: str | None = None
    """Under which its durations are remembered; None: its id."""


class SeenJob(msgspec.Struct, frozen=True):
    """A job that has ended."""

    id: str
    arrival_s: float
    """Unix time."""
    finish_s: float
    """Likewise."""
    stages: tuple[SeenStage, ...]
    user: str | None = None


class Records:
    """Writes both files; what cannot be written is counted, and never stops a cluster."""

    def __init__(
        self, directory: Path | None, *, states: bool = True, largest: int = 64 << 20, keep: int = 8
    ) -> None:
        """Begin to record; what a directory holds already is added to.

        Args:
            directory: None: keep nothing.
            states: log what was observed, too, the largest part by far.
            largest: bytes of the log of decisions; then it goes on in a new one.
            keep: how many older ones stay, as decisions.jsonl.1, .2, ...

        Raises:
            ConfigError: nothing can be written there.
        """
        self.directory = directory
        self.lost = 0
        self.began_s = time.time()
        self._states, self._largest, self._keep = states, largest, keep
        self._lock = threading.Lock()
        self._files: dict[str, IO[bytes]] = {}
        if directory is None:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            began = directory / BEGAN
            if began.exists():
                self.began_s = msgspec.json.decode(began.read_bytes(), type=float)
            else:
                began.write_bytes(msgspec.json.encode(self.began_s))
            for name in (DECISIONS, JOBS):
                self._files[name] = self._opened(name)
        except OSError as error:
            raise ConfigError(f"{directory}: cannot record there: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{directory / BEGAN}: is no time: {error}") from None

    def round(self, at_s: float, observation: Observation, answer: Answer, outcome: str) -> None:
        """Log a round."""
        if self.directory is None:
            return
        seen = observation if self._states else None
        self._write(
            DECISIONS,
            msgspec.json.encode(Round(at_s=at_s, answer=answer, outcome=outcome, observation=seen)),
        )

    def job(self, job: SeenJob) -> None:
        """Add a job that has ended to the workload."""
        if self.directory is None:
            return
        stages = [
            {
                "id": stage.id,
                "parents": stage.parents,
                "task_count": len(stage.durations_s),
                "durations": {"kind": "per_task", "values_s": stage.durations_s},
            }
            for stage in job.stages
        ]
        arrival_s = max(job.arrival_s - self.began_s, 0.0)
        line: dict[str, Any] = {"id": job.id, "arrival_s": arrival_s, "stages": stages}
        if job.user is not None:
            line["user"] = job.user
        self._write(JOBS, msgspec.json.encode(line))

    def close(self) -> None:
        """End the files."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files = {}

    def _write(self, name: str, line: bytes) -> None:
        with self._lock:
            try:
                if name not in self._files:
                    self._files[name] = self._opened(name)
                file = self._files[name]
                file.write(line + b"\n")
                file.flush()
                if name == DECISIONS and file.tell() > self._largest:
                    self._rotate()
            except (OSError, ValueError):
                self.lost += 1

    def _opened(self, name: str) -> IO[bytes]:
        assert self.directory is not None
        file = (self.directory / name).open("ab")
        if name == JOBS and file.tell() == 0:
            file.write(_HEADER)
            file.flush()
        return file

    def _rotate(self) -> None:
        assert self.directory is not None
        self._files.pop(DECISIONS).close()
        path = self.directory / DECISIONS
        for number in range(self._keep - 1, 0, -1):
            older = path.with_name(f"{DECISIONS}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{DECISIONS}.{number + 1}"))
        path.replace(path.with_name(f"{DECISIONS}.1"))
