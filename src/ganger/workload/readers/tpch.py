"""TPC-H on Spark: the stage profiles published with Decima (Mao et al. 2019, SIGCOMM).

A directory holds one folder per input size; in it, for each query q:

- adj_mat_q.npy: a k x k matrix of 0 and 1; [i, j] = 1 where stage i feeds stage j;
- task_duration_q.npy: {stage: {"first_wave" | "fresh_durations" | "rest_wave":
  {executors: [milliseconds]}}}, profiled on clusters of so many executors.
"""

import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ganger.errors import WorkloadError
from ganger.workload.model import Stage, Wave, Waves, check_stages
from ganger.workload.readers.npy import plain, read_npy

SIZES = ("2g", "5g", "10g", "20g", "50g", "80g", "100g")
QUERIES = range(1, 23)
LEVELS = (5, 10, 20, 40, 50, 60, 80, 100)
"""Executor counts that durations are drawn from; the profiles' level 2 never is."""

WARMUP_S = 1.0
"""What a fresh executor pays on top of a first task where no fresh one was measured."""

Profiles = dict[tuple[str, int], tuple[Stage, ...]]


class _Seconds(dict[float, float]):
    """Milliseconds -> seconds; equal durations share one float, of 1.4 million few are distinct."""

    def __missing__(self, value_ms: float) -> float:
        self[value_ms] = value_s = value_ms / 1000.0
        return value_s


def read_profiles(directory: str | os.PathLike[str]) -> Profiles:
    """Read the stages of every (size, query) present, sizes ascending, then queries.

    Raises:
        WorkloadError: naming the file and what is wrong or missing.
    """
    root = Path(directory)
    profiles: Profiles = {}
    seconds = _Seconds()
    for size in SIZES:
        for query in QUERIES:
            matrix = root / size / f"adj_mat_{query}.npy"
            durations = root / size / f"task_duration_{query}.npy"
            if matrix.exists() or durations.exists():
                profiles[size, query] = _read_stages(matrix, durations, seconds)
    if not profiles:
        reason = "holds no TPC-H profiles" if root.is_dir() else "is not a directory"
        raise WorkloadError(
            f"{root}: {reason}; expected folders named {', '.join(SIZES)} with adj_mat_1.npy, "
            "task_duration_1.npy, ..."
        )
    return profiles


def _read_stages(matrix_path: Path, durations_path: Path, seconds: _Seconds) -> tuple[Stage, ...]:
    matrix = read_npy(matrix_path)
    if (
        not isinstance(matrix, np.ndarray)
        or matrix.ndim != 2
        or matrix.shape[0] != matrix.shape[1]
        or not np.isin(matrix, (0, 1)).all()
    ):
        raise WorkloadError(f"{matrix_path}: expected a square matrix of 0 and 1")
    profile = read_npy(durations_path)
    if not isinstance(profile, dict) or set(profile) != set(range(len(matrix))):
        raise WorkloadError(
            f"{durations_path}: expected a dict with the stages 0 to {len(matrix) - 1} of "
            f"{matrix_path.name}"
        )
    stages = tuple(
        _stage(index, matrix, profile[index], seconds, f"{durations_path}: stage {index}")
        for index in range(len(matrix))
    )
    check_stages(stages, str(durations_path))
    return stages


def _stage(index: int, matrix: Any, profile: Any, seconds: _Seconds, where: str) -> Stage:
    first, fresh, rest = (
        _wave(profile, name, where) for name in ("first_wave", "fresh_durations", "rest_wave")
    )
    if not first or not first.keys() == fresh.keys() == rest.keys():
        raise WorkloadError(
            f"{where}: expected first_wave, fresh_durations and rest_wave for the same executor "
            "counts"
        )
    # The sum differs between levels in a few stages: the level that comes first in the file counts.
    counted = next(iter(first))
    task_count = len(first[counted]) + len(rest[counted])

    # Fresh tasks are listed among the first ones, too. A level without first tasks of its own
    # takes those of the level below.
    carried: list[float] = []
    for level in sorted(first):
        carried = _without(first[level], fresh[level]) or carried
        first[level] = carried

    values_ms = [value for wave in (first, fresh, rest) for part in wave.values() for value in part]
    if not values_ms:
        raise WorkloadError(f"{where}: holds no durations; expected at least one")
    largest = max(first)
    waves = {
        level: Wave(
            executors=level,
            fresh_s=tuple(map(seconds.__getitem__, fresh[source])),
            first_s=tuple(map(seconds.__getitem__, first[source])),
            rest_s=tuple(map(seconds.__getitem__, rest[source])),
        )
        for level in LEVELS
        for source in (level if level in first else largest,)
    }
    return Stage(
        id=str(index),
        parents=tuple(str(parent) for parent in np.flatnonzero(matrix[:, index])),
        task_count=task_count,
        durations=Waves(levels=tuple(waves.values()), warmup_s=WARMUP_S, interpolation="inverted"),
        estimated_task_s=math.fsum(values_ms) / len(values_ms) / 1000.0,
    )


def _wave(profile: Any, name: str, where: str) -> dict[int, list[float]]:
    """One of the three profiles of a stage, in the file's order: executors -> milliseconds."""
    by_level = profile.get(name) if isinstance(profile, dict) else None
    if not isinstance(by_level, dict):
        raise WorkloadError(f"{where}: expected a dict {name!r} of executor counts")
    wave = {}
    for level, contents in by_level.items():
        values = plain(contents)
        if type(level) is not int or type(values) is not list:
            raise WorkloadError(f"{where}: {name}: expected lists by executor count")
        try:
            math.fsum(values)
        except (TypeError, ValueError, OverflowError):
            raise WorkloadError(
                f"{where}: {name}[{level}]: expected finite numbers, in milliseconds"
            ) from None
        wave[level] = values
    return wave


def _without(values: list[float], removed: list[float]) -> list[float]:
    """`values` less one occurrence for each of `removed`, in order."""
    if not removed:
        return values
    left = Counter(removed)
    kept = []
    for value in values:
        if left[value] > 0:
            left[value] -= 1
        else:
            kept.append(value)
    return kept
