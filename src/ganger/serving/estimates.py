"""How long a task of a stage will take, as far as anybody can know.

Nobody tells a driver durations: what it gives to a scheduler comes from finished tasks of the same
stage, from earlier stages of the same name, or from a prior, and it says which.
"""

import math
import os
from pathlib import Path
from typing import Literal

import msgspec

from ganger.errors import ConfigError

_BASE_WEIGHT = 2.0  # what is known of a name counts as so many tasks of the stage that runs
_MEMORY = 1000.0  # tasks of a name; of older ones the weight fades
_NAMES = 100_000

Source = Literal["tasks", "history", "prior"]


class Estimate(msgspec.Struct, frozen=True):
    """Seconds that a task takes, and what that rests on."""

    task_s: float
    source: Source
    """tasks: of this stage; history: of earlier stages of the name; prior: nothing."""


class _Known(msgspec.Struct):
    """Of a name: a mean that fades."""

    tasks: float = 0.0
    mean_s: float = 0.0


class _Errors(msgspec.Struct):
    """Of estimates made before a stage began: log ratios of true to estimated."""

    stages: int = 0
    log_sum: float = 0.0
    abs_log_sum: float = 0.0


class _File(msgspec.Struct):
    format: str = "ganger.estimates"
    version: int = 1
    names: dict[str, _Known] = {}
    errors: dict[str, _Errors] = {}


class Estimates:
    """Durations by the name of a stage; not safe to use from several threads."""

    def __init__(self, prior_s: float = 1.0, path: Path | None = None) -> None:
        """Start with what a file holds.

        Args:
            prior_s: for a name that was never seen, until any other was: then their mean.
            path: where they are kept; a file that is not there yet is empty.

        Raises:
            ConfigError: prior_s is no duration, or the file is none of ours.
        """
        if not 0 < prior_s < math.inf:
            raise ConfigError(f"the prior of a task's duration is {prior_s}; expected seconds")
        self.prior_s = prior_s
        self.path = path
        self._file = _File() if path is None else _read(path)
        self._begun: dict[tuple[str, str], Estimate] = {}

    def estimate(self, name: str, finished: int = 0, total_s: float = 0.0) -> Estimate:
        """Of a task of a stage.

        Args:
            name: of the stage, the same in every run of the job.
            finished: its tasks that have ended.
            total_s: how long these took, together.
        """
        known = self._file.names.get(name)
        base_s = self._prior() if known is None else known.mean_s
        if finished > 0:
            weight = _BASE_WEIGHT if known is not None else 0.0
            return Estimate((weight * base_s + total_s) / (weight + finished), "tasks")
        return Estimate(base_s, "prior" if known is None else "history")

    def learn(self, name: str, finished: int, total_s: float) -> None:
        """A stage of this name has ended: remember its tasks, and how wrong its estimate was."""
        if finished <= 0 or not total_s >= 0:
            return
        mean_s = total_s / finished
        before = self.estimate(name)
        if mean_s > 0 and before.task_s > 0:
            errors = self._file.errors.setdefault(before.source, _Errors())
            ratio = math.log(mean_s / before.task_s)
            errors.stages += 1
            errors.log_sum += ratio
            errors.abs_log_sum += abs(ratio)
        known = self._file.names.pop(name, None) or _Known()
        weight = min(known.tasks, _MEMORY)
        known.mean_s = (weight * known.mean_s + total_s) / (weight + finished)
        known.tasks = min(weight + finished, _MEMORY)
        self._file.names[name] = known  # last: the names of long ago are forgotten first
        while len(self._file.names) > _NAMES:
            del self._file.names[next(iter(self._file.names))]

    def error(self) -> dict[str, dict[str, float]]:
        """By source: stages, and by what factor estimates were off, typically and on the whole.

        `factor` is exp(mean |log(true / estimated)|), 1 where all were right; `bias` likewise with
        the sign, above 1 where stages took longer than estimated.
        """
        return {
            source: {
                "stages": errors.stages,
                "factor": math.exp(errors.abs_log_sum / errors.stages),
                "bias": math.exp(errors.log_sum / errors.stages),
            }
            for source, errors in self._file.errors.items()
            if errors.stages
        }

    def save(self) -> None:
        """Write them to their file, which is whole at any moment.

        Raises:
            OSError: it cannot be written.
        """
        if self.path is None:
            return
        part = self.path.with_name(self.path.name + ".part")
        part.write_bytes(msgspec.json.encode(self._file))
        os.replace(part, self.path)

    def _prior(self) -> float:
        known = self._file.names.values()
        if not known:
            return self.prior_s
        # Geometric: durations of stages spread over orders of magnitude.
        logs = [math.log(one.mean_s) for one in known if one.mean_s > 0]
        return math.exp(sum(logs) / len(logs)) if logs else self.prior_s


def _read(path: Path) -> _File:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: holds no estimates of Ganger's: {error}") from None
    if (file.format, file.version) != ("ganger.estimates", 1):
        raise ConfigError(
            f"{path}: is {file.format!r} version {file.version}; "
            f"expected ganger.estimates version 1"
        )
    return file
