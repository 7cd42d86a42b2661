"""Checks of a reader: its jobs are sound, the same every time, and broken files are refused."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ganger.errors import ConformanceError, GangerError, WorkloadError
from ganger.workload.model import (
    MAX_TIME_S,
    Job,
    PerTask,
    Pool,
    Stage,
    Waves,
    Workload,
    check_jobs,
    topological_order,
)

Reader = Callable[[Path], Any]
"""Takes a path, returns a Workload, an iterable of Jobs, or a mapping of names to stages."""


def check_reader(reader: Reader, path: str | os.PathLike[str]) -> None:
    """Check a reader on a file, or on a directory of files, that it can read.

    The checks, by name:

    - reads: it returns a Workload, an iterable of Jobs, or a mapping of names to stages (jobs
      without arrivals), and at least one job;
    - sorted: jobs come by arrival;
    - times: arrivals, durations and estimates are finite and 0 or more;
    - DAG: a stage's parents are stages of its job, and none waits for itself;
    - jobs: whatever else a Workload asks for, as unique ids;
    - repeatable: reading twice gives equal jobs;
    - broken input: a file that is missing, empty or holds noise is refused by a GangerError that
      names it; of one that is cut off, jobs may be read, if they are sound. In a directory, one
      file of each kind is broken; files whose names differ in digits only are of one kind.

    Raises:
        ConformanceError: the first check that fails, on what, and how to reproduce it.
    """
    path = Path(path)
    jobs = _sound(reader, path, str(path), f"reader({str(path)!r})")
    again = _read(reader, path, str(path), f"reader({str(path)!r})")
    if jobs != again:
        j = next((j for j, (a, b) in enumerate(zip(jobs, again, strict=False)) if a != b), None)
        what = f"{len(jobs)} jobs, then {len(again)}" if j is None else f"job {j} differs"
        raise ConformanceError("repeatable", str(path), what, f"reader({str(path)!r}), twice")
    with tempfile.TemporaryDirectory() as directory:
        for member in _members(path):
            _check_broken(reader, path, member, Path(directory))


def _read(reader: Reader, path: Path, on: str, reproduce: str) -> list[Job]:
    """What the reader gives, as a list of jobs."""
    try:
        given = reader(path)
        if isinstance(given, Workload):
            return list(given.jobs)
        if isinstance(given, Mapping):
            given = [
                Job(id=str(name), arrival_s=0.0, stages=stages) for name, stages in given.items()
            ]
        if not isinstance(given, Iterable):
            what = f"returned a {type(given).__name__}; expected a Workload, Jobs or a mapping"
            raise ConformanceError("reads", on, what, reproduce)
        jobs = list(given)
    except GangerError:
        raise
    except Exception as error:  # whatever it is, it is the reader's
        what = f"{type(error).__name__}: {error}; expected a GangerError or jobs"
        raise ConformanceError("reads", on, what, reproduce) from error
    for job in jobs:
        if not isinstance(job, Job):
            what = f"a {type(job).__name__} among the jobs; expected only Jobs"
            raise ConformanceError("reads", on, what, reproduce)
    return jobs


def _sound(reader: Reader, path: Path, on: str, reproduce: str) -> list[Job]:
    """The reader's jobs, checked."""
    try:
        jobs = _read(reader, path, on, reproduce)
    except ConformanceError:
        raise
    except GangerError as error:
        raise ConformanceError("reads", on, f"refused: {error}", reproduce) from error
    problem = _problem(jobs)
    if problem is not None:
        check, what = problem
        raise ConformanceError(check, on, what, reproduce)
    return jobs


def _problem(jobs: list[Job]) -> tuple[str, str] | None:
    """The check that jobs fail, and why."""
    if not jobs:
        return "reads", "there are no jobs; expected at least one"
    for job in jobs:
        for what, seconds in _times(job):
            if not 0.0 <= seconds <= MAX_TIME_S:
                expected = f"expected 0 to {MAX_TIME_S:g} seconds"
                return "times", f"job {job.id!r}: {what} is {seconds}; {expected}"
    for before, job in pairwise(jobs):
        if job.arrival_s < before.arrival_s:
            arrivals = f"{job.arrival_s:g} s after one at {before.arrival_s:g} s"
            return "sorted", f"job {job.id!r} arrives at {arrivals}"
    for job in jobs:
        if (wrong := _not_a_dag(job.stages)) is not None:
            return "DAG", f"job {job.id!r}: {wrong}"
    try:
        check_jobs(jobs)
    except WorkloadError as error:
        return "jobs", str(error)
    return None


def _times(job: Job) -> Iterable[tuple[str, float]]:
    yield "arrival_s", job.arrival_s
    for stage in job.stages:
        if stage.estimated_task_s is not None:
            yield f"stage {stage.id!r}: estimated_task_s", stage.estimated_task_s
        for seconds in _extremes(stage):
            yield f"stage {stage.id!r}: a duration", seconds


def _extremes(stage: Stage) -> Iterable[float]:
    """Least and most of each list of durations; NaN if there is one."""
    match stage.durations:
        case PerTask(values_s=values) | Pool(values_s=values):
            lists = [values]
        case Waves(levels=levels):
            lists = [part for wave in levels for part in (wave.fresh_s, wave.first_s, wave.rest_s)]
        case _:
            lists = []
    for values in lists:
        if values:
            array = np.array(values)
            yield from (float(array.min()), float(array.max()))


def _not_a_dag(stages: tuple[Stage, ...]) -> str | None:
    names = {stage.id for stage in stages}
    if len(names) < len(stages):
        return None  # the check of ids says more
    for stage in stages:
        if unknown := set(stage.parents) - names:
            return f"stage {stage.id!r}: parent {min(unknown)!r} is no stage of this job"
    try:
        topological_order(stages)
    except WorkloadError as error:
        return str(error)
    return None


def _members(path: Path) -> list[Path]:
    """Paths to break, relative to `path`: itself, or one file of each kind in a directory."""
    if not path.is_dir():
        return [Path()]
    kinds: dict[str, Path] = {}
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        kinds.setdefault(re.sub(r"\d+", "", file.name), file.relative_to(path))
    return list(kinds.values())


def _check_broken(reader: Reader, path: Path, member: Path, directory: Path) -> None:
    whole = (path / member).read_bytes()
    noise = np.random.default_rng(0).bytes(max(len(whole), 64))
    broken: list[tuple[str, bytes | None]] = [
        ("missing", None),
        ("empty", b""),
        ("noise", noise),
        ("noise after its first bytes", whole[:16] + noise),
        *((f"cut to {size} of {len(whole)} bytes", whole[:size]) for size in _cuts(len(whole))),
    ]
    for how, contents in broken:
        target = directory / "broken" / path.name
        _copy(path, target, member, contents)
        file = target / member
        on = f"{path / member}, {how}"
        reproduce = f"reader(...) with {_recipe(how, path / member)}"
        try:
            jobs = _read(reader, target, on, reproduce)
        except ConformanceError as error:
            raise ConformanceError("broken input", on, error.problem, reproduce) from error
        except GangerError as error:
            if file.name not in str(error):
                what = f"the message does not name the file: {error}"
                raise ConformanceError("broken input", on, what, reproduce) from None
        else:
            # A file that is cut between two jobs may be a sound, shorter one.
            problem = _problem(jobs) if how.startswith("cut") else ("", "it was read")
            if problem is not None:
                what = f"{problem[1]}; expected a GangerError that names the file"
                raise ConformanceError("broken input", on, what, reproduce)
        shutil.rmtree(directory / "broken")


def _cuts(size: int) -> list[int]:
    return sorted({size // 3, size // 2, size - 2} - {-2, -1, 0})


def _copy(path: Path, target: Path, member: Path, contents: bytes | None) -> None:
    """Put beside each other links to all files of `path`, but other contents, or none, in one."""
    target.parent.mkdir(parents=True)
    if path.is_dir():
        for file in path.rglob("*"):
            if file.is_file() and file != path / member:
                link = target / file.relative_to(path)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.resolve())
    broken = target / member
    broken.parent.mkdir(parents=True, exist_ok=True)
    if contents is not None:
        broken.write_bytes(contents)


def _recipe(how: str, file: Path) -> str:
    if how == "missing":
        return f"{file} removed"
    if how == "empty":
        return f"{file} emptied"
    if how.startswith("cut"):
        return f"{file} {how}"
    kept = "16" if "after" in how else "0"
    return f"{file} cut to {kept} bytes and numpy.random.default_rng(0).bytes(...) appended"
