"""Where jobs come from: what `--workload SPEC` names, and random job lists drawn from it.

SPEC is "synthetic" or "synthetic:seed=N", "tpch:DIR", or files in any format that there is a reader
for: PATH, whose format is recognised by its content, or FORMAT:PATH. PATH is a file, a directory
or a glob, which are all their files as one workload, or "-", standard input. A reader's options
come between FORMAT and the colon, as in FORMAT,option=value:PATH.
"""

import glob
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from ganger import streams
from ganger.errors import WorkloadError
from ganger.streams import Stream
from ganger.workload.arrivals import draw_job_list
from ganger.workload.model import Job, Stage, Workload
from ganger.workload.readers import READERS, detect, read_options
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.opening import STDIN, expand
from ganger.workload.readers.tpch import SIZES, Profiles, read_profiles
from ganger.workload.synthetic import synthetic_stages

Split = Literal["train", "test", "all"]
Templates = tuple[tuple[Stage, ...], ...]

SPECS = f"synthetic, synthetic:seed=N, tpch:DIR, PATH, or FORMAT:PATH with {', '.join(READERS)}"
SYNTHETIC_TEMPLATES = 512
INTERARRIVAL_S = 25.0
"""Mean time between arrivals of jobs that have none of their own, unless another is given."""


class JobSource(Protocol):
    """What a workload specification gives."""

    @property
    def name(self) -> str:
        """The specification that loads this source again."""

    def templates(self, split: Split) -> Templates:
        """The distinct jobs that random job lists draw from; never empty."""


@dataclass(frozen=True)
class SyntheticSource:
    """Generated jobs. Those for training and those for tests have no index in common."""

    seed: int = 0

    @property
    def name(self) -> str:
        return "synthetic" if self.seed == 0 else f"synthetic:seed={self.seed}"

    def templates(self, split: Split) -> Templates:
        match split:
            case "train":
                return self._train
            case "test":
                return self._test
        return self._train + self._test

    @cached_property
    def _train(self) -> Templates:
        return tuple(synthetic_stages(self.seed, i) for i in range(SYNTHETIC_TEMPLATES))

    @cached_property
    def _test(self) -> Templates:
        indices = range(SYNTHETIC_TEMPLATES, 2 * SYNTHETIC_TEMPLATES)
        return tuple(synthetic_stages(self.seed, i) for i in indices)


@dataclass(frozen=True)
class TpchSource:
    """TPC-H profiles. Training and tests draw from all of them: what is unseen is the list."""

    name: str
    profiles: Profiles = field(repr=False, compare=False)

    def templates(self, split: Split) -> Templates:
        return self._templates

    @cached_property
    def _templates(self) -> Templates:
        return tuple(self.profiles.values())


@dataclass(frozen=True)
class FileSource:
    """A recorded workload: the first 80 % of its jobs are for training, the rest for tests."""

    name: str
    trace: Workload = field(repr=False, compare=False)
    findings: Findings = field(default_factory=Findings, repr=False, compare=False)
    """What its reader saw, and did about it."""

    def workload(self) -> Workload:
        """The whole trace, with its own arrivals."""
        return self.trace

    def part(self, split: Split) -> tuple[Job, ...]:
        """The jobs of a split, by arrival."""
        jobs = self.trace.jobs
        cut = len(jobs) * 4 // 5
        part = {"train": jobs[:cut], "test": jobs[cut:], "all": jobs}[split]
        if not part:
            raise WorkloadError(
                f"{self.name}: {len(jobs)} jobs leave none to {split} with; expected 2 or more"
            )
        return part

    def templates(self, split: Split) -> Templates:
        return tuple(job.stages for job in self._distinct(split))

    def users(self, split: Split) -> tuple[str | None, ...]:
        """Whose job each template is: what two users share are two templates."""
        return tuple(job.user for job in self._distinct(split))

    def _distinct(self, split: Split) -> list[Job]:
        return list({(id(job.stages), job.user): job for job in self.part(split)}.values())


def arrivals_of(
    source: JobSource, split: Split, interarrival_s: float | None
) -> float | tuple[Job, ...]:
    """How jobs arrive in job lists: at random, so many seconds apart, or as these jobs do.

    Args:
        interarrival_s: what was asked for; None: a file's own arrivals, where it is a file.
    """
    if interarrival_s is None:
        return source.part(split) if isinstance(source, FileSource) else INTERARRIVAL_S
    if not 0.0 <= interarrival_s < math.inf:
        raise WorkloadError(f"interarrival_s is {interarrival_s}; expected 0 or more")
    return float(interarrival_s)


def template_users(source: JobSource, split: Split) -> tuple[str | None, ...]:
    """Whose job each template of the source is; None where nobody is named."""
    if isinstance(source, FileSource):
        return source.users(split)
    return (None,) * len(source.templates(split))


def template_weights(source: JobSource, split: Split, weights: Mapping[str, float]) -> list[float]:
    """What each template of the source weighs: as much as its user, and 1 unless that is given."""
    users = template_users(source, split)
    return [1.0 if user is None else weights.get(user, 1.0) for user in users]


def job_weights(jobs: Iterable[Job], weights: Mapping[str, float]) -> list[float]:
    """What each job weighs: as much as its user, and 1 unless that is given."""
    return [1.0 if job.user is None else weights.get(job.user, 1.0) for job in jobs]


def load_source(spec: str, *, strict: bool = False) -> JobSource:
    """Load what a workload specification names.

    Args:
        strict: refuse files of which anything would have to be dropped, repaired or guessed.

    Raises:
        WorkloadError: if the specification is unknown, or what it names cannot be read.
    """
    kind, _, argument = spec.partition(":")
    if kind == "synthetic":
        return SyntheticSource(_synthetic_seed(spec))
    if kind == "tpch" and argument:
        return TpchSource(spec, read_profiles(Path(argument).expanduser()))
    format, *options = kind.split(",")
    findings = Findings(strict=strict)
    if format in READERS and argument:
        given = read_options(format, dict(_option(text, spec) for text in options))
        paths = expand(argument)
    elif format not in READERS and spec and (spec == "-" or _exists(spec)):
        format, paths, given = *_recognised(spec, findings), {}
    else:
        raise WorkloadError(f"workload {spec!r} is unknown; expected {SPECS}")
    jobs = READERS[format].read(paths, findings, **given)
    return FileSource(spec, Workload(tuple(jobs)), findings)


def _exists(spec: str) -> bool:
    """Whether it is a name for files, whatever comes of reading them."""
    return glob.has_magic(spec) or os.path.exists(os.path.expanduser(spec))


def _option(text: str, spec: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise WorkloadError(f"workload {spec!r}: {text!r} is no option; expected name=value")
    return key, value


def _recognised(spec: str, findings: Findings) -> tuple[str, list[Path]]:
    """The one format among the files that a name stands for, and the files of it."""
    by_format: dict[str, list[Path]] = {}
    unknown = []
    paths = expand(spec)
    for path in paths:
        if (format := detect(path)) is not None:
            by_format.setdefault(format, []).append(path)
        elif path != STDIN and path.stat().st_size == 0 and len(paths) > 1:
            findings.notes.append(f"{path}: the file is empty")
        else:
            unknown.append(path)
    names = ", ".join(READERS)
    if not by_format:
        raise WorkloadError(
            f"{paths[0]}: the format is not recognised; there are readers of {names}, and "
            "FORMAT:PATH forces one; table,submit=COLUMN,run=COLUMN,processors=COLUMN:PATH reads "
            "any CSV or Parquet"
        )
    if len(by_format) > 1:
        found = ", ".join(f"{name} ({files[0]})" for name, files in by_format.items())
        raise WorkloadError(
            f"{spec}: the files are of several formats, {found}; choose one of them"
        )
    for path in unknown:
        findings.add("dropped", "file of no format that is recognised", str(path))
    return next(iter(by_format.items()))


def _synthetic_seed(spec: str) -> int:
    if spec == "synthetic":
        return 0
    digits = spec.removeprefix("synthetic:seed=")
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return int(digits)
    raise WorkloadError(f"workload {spec!r}: expected synthetic or synthetic:seed=N, N 0 or more")


def random_workload(
    source: JobSource,
    *,
    jobs: int,
    interarrival_s: float,
    seed: int,
    index: int = 0,
    split: Split = "test",
) -> Workload:
    """Draw a job list: Poisson arrivals, the first at 0, each job a random template.

    Lists of the two splits come from different random streams.

    Args:
        jobs: how many, 1 or more.
        interarrival_s: mean time between arrivals; 0: all jobs arrive at once.
        index: which list of the seed, 0 or more.
    """
    if jobs < 1:
        raise WorkloadError(f"jobs is {jobs}; expected 1 or more")
    if not 0.0 <= interarrival_s < math.inf:
        raise WorkloadError(f"interarrival_s is {interarrival_s}; expected seconds, 0 or more")
    if seed < 0 or index < 0:
        raise WorkloadError(f"seed is {seed}, index is {index}; expected 0 or more")
    templates, users = source.templates(split), template_users(source, split)
    stream = Stream.JOB_LIST if split == "train" else Stream.EVALUATION
    chosen = np.empty(jobs, np.int32)
    arrivals_s = np.empty(jobs, np.float64)
    key = streams.key(seed, stream, index)
    draw_job_list(key, jobs, float(interarrival_s), len(templates), chosen, arrivals_s)
    return Workload(
        tuple(
            Job(id=str(i), arrival_s=arrival_s, stages=templates[template], user=users[template])
            for i, (template, arrival_s) in enumerate(
                zip(chosen.tolist(), arrivals_s.tolist(), strict=True)
            )
        )
    )


def job_list_workload(source: JobSource, path: str | os.PathLike[str]) -> Workload:
    """Read a TPC-H job list: JSON, one [arrival in milliseconds, input size, query] per job.

    Raises:
        WorkloadError: if the source has no TPC-H profiles, or the file is not such a list.
    """
    if not isinstance(source, TpchSource):
        raise WorkloadError(
            f"{source.name}: a job list names TPC-H queries; expected --workload tpch:DIR"
        )
    try:
        with open(path, "rb") as file:
            rows: list[Any] = msgspec.json.decode(file.read(), type=list)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise WorkloadError(f"{path}: {error}; expected {_JOB_LIST}") from None
    if not rows:
        raise WorkloadError(f"{path}: the list is empty; expected {_JOB_LIST}")
    return Workload(
        tuple(
            _listed_job(i, row, source.profiles, f"{path}: entry {i + 1}")
            for i, row in enumerate(rows)
        )
    )


_JOB_LIST = 'a JSON list of [arrival_ms, size, query], as [[0, "50g", 19], [25489.9, "2g", 7]]'


def _listed_job(index: int, row: Any, profiles: Profiles, where: str) -> Job:
    match row:
        case [float() | int() as arrival_ms, str(size), int(query)] if 0 <= arrival_ms <= 1e18:
            pass
        case _:
            raise WorkloadError(f"{where}: {str(row)[:80]}; expected [arrival_ms, size, query]")
    if (size, query) not in profiles:
        known = "no such profile was loaded" if size in SIZES else f"sizes are {', '.join(SIZES)}"
        raise WorkloadError(f"{where}: no job of size {size!r} and query {query}; {known}")
    return Job(id=str(index), arrival_s=arrival_ms / 1000.0, stages=profiles[size, query])
