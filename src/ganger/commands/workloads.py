"""The workload that a command was given: read, checked against the cluster, and told about."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganger.errors import ConfigError
from ganger.training.config import TrainConfig

if TYPE_CHECKING:
    from ganger.simulator.cluster import Cluster
    from ganger.workload import JobSource, Workload
    from ganger.workload import Split as SplitName
    from ganger.workload.classes import ExecutorClass
    from ganger.workload.verdicts import Verdict

_DEFAULTS = TrainConfig()


def load(spec: str, *, strict: bool = False) -> "JobSource":
    """Load a workload; what its reader altered is told on standard error."""
    from ganger.workload import FileSource, load_source

    source = load_source(spec, strict=strict)
    if isinstance(source, FileSource):
        for found in source.findings.found.values():
            if found.action != "noted":
                print(
                    f"ganger: {found.count:,} {found.action}: {found.reason} "
                    f"({places(found.places)})",
                    file=sys.stderr,
                )
    return source


def places(places: Sequence[str]) -> str:
    """The first places; a file is named once."""
    shown, before = [], ""
    for place in places:
        file, _, line = place.rpartition(":")
        shown.append(f":{line}" if file and file == before else place)
        before = file
    return ", ".join(shown)


def fitting(
    source: "JobSource", executors: int, reject: bool, classes: "Sequence[ExecutorClass]" = ()
) -> "tuple[JobSource, int]":
    """The source without the jobs that can never run, if they are to be left out; how many.

    That the cluster is not as large as the log's is told.
    """
    from ganger.workload import FileSource, Workload
    from ganger.workload.verdicts import without_misfits

    if not isinstance(source, FileSource):
        return source, 0
    if (own := source.findings.executors) is not None and own != executors:
        print(
            f"ganger: note: the cluster has {executors:,} executors; the log says {own:,}",
            file=sys.stderr,
        )
    if not reject:
        return source, 0
    every = source.trace.jobs
    jobs = without_misfits(every, executors, classes)
    if rejected := len(every) - len(jobs):
        print(
            f"ganger: {rejected:,} of {len(every):,} jobs left out: they can never run on "
            f"{executors:,} executors",
            file=sys.stderr,
        )
        source = FileSource(source.name, Workload(jobs), source.findings)
    return source, rejected


def to_run(
    source: "JobSource",
    cluster: "Cluster",
    jobs: int | None,
    interarrival_s: float | None,
    seed: int,
    reject: bool,
) -> "tuple[Workload, int]":
    """The jobs of one simulation after the verdict on them, and how many were left out.

    A file is run as it is, or its first jobs; if a time between arrivals is given, and of a source
    without arrivals, so many jobs are drawn.
    """
    from ganger.workload import FileSource, Workload, random_workload
    from ganger.workload.sources import INTERARRIVAL_S
    from ganger.workload.verdicts import verdicts

    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs is {jobs}; expected 1 or more")
    if isinstance(source, FileSource):
        if interarrival_s is None:
            few = FileSource(source.name, Workload(source.trace.jobs[:jobs]), source.findings)
            kept, rejected = fitting(few, cluster.executors, reject, cluster.classes)
            assert isinstance(kept, FileSource)
            tell(verdicts(kept.trace.jobs, cluster.executors, cluster.classes))
            return kept.trace, rejected
        if jobs is None:
            raise ConfigError("--interarrival is for random jobs; say how many with --jobs")
    between_s = INTERARRIVAL_S if interarrival_s is None else interarrival_s
    source, _ = fitting(source, cluster.executors, reject, cluster.classes)
    check_lists(source, "test", cluster.executors, between_s, classes=cluster.classes)
    count = _DEFAULTS.jobs if jobs is None else jobs
    return random_workload(source, jobs=count, interarrival_s=between_s, seed=seed), 0


def recorded(source: "JobSource") -> "tuple[JobSource, int]":
    """The source without the jobs that a log cannot replay; how many."""
    from ganger.evaluation import recorded_part
    from ganger.workload import FileSource

    if not isinstance(source, FileSource):
        return source, 0
    recorded = recorded_part(source.trace)
    if left_out := len(source.trace.jobs) - len(recorded.jobs):
        print(
            f"ganger: {left_out:,} of {len(source.trace.jobs):,} jobs left out, for all "
            "schedulers: no start and finish of theirs is recorded that could be replayed",
            file=sys.stderr,
        )
    return FileSource(source.name, recorded, source.findings), left_out


def say_which(name: str, value: object, flag: str) -> None:
    """Of several settings that a policy was trained for, one has to be chosen."""
    if isinstance(value, list | tuple):
        several = ", ".join(f"{each:g}" for each in value)
        raise ConfigError(f"this policy was trained for {name} {several}; say which with {flag}")


def list_jobs(own_arrivals: bool) -> int:
    """Jobs in a list unless it is said: a window begins with an idle cluster, so it is longer."""
    return 256 if own_arrivals else _DEFAULTS.jobs


def check_lists(
    source: "JobSource",
    split: "SplitName",
    executors: int | Sequence[int],
    interarrival_s: float | Sequence[float] | None,
    jobs: int = 1,
    classes: "Sequence[ExecutorClass]" = (),
) -> int:
    """The verdict on job lists: of several clusters or loads, the one that is hardest to meet.

    What it warns of is told, what can never run is refused.

    Returns how many jobs a list can have: as many as wanted, or all that a log has.
    """
    from ganger.workload import arrivals_of
    from ganger.workload.verdicts import template_verdicts, verdicts

    least = executors if isinstance(executors, int) else min(executors)
    between_s = min(interarrival_s) if isinstance(interarrival_s, Sequence) else interarrival_s
    arrivals = arrivals_of(source, split, between_s)
    if not isinstance(arrivals, tuple):
        tell(template_verdicts(source.templates(split), least, arrivals, classes))
        return jobs
    tell(verdicts(arrivals, least, classes))
    if jobs > len(arrivals):
        print(
            f"ganger: a list has {len(arrivals)} jobs, not {jobs}: there are no more to "
            f"{'train' if split == 'train' else 'test'} with",
            file=sys.stderr,
        )
    return min(jobs, len(arrivals))


def arrivals_in_words(
    source: "JobSource",
    split: "SplitName",
    interarrival_s: float | Sequence[float] | None,
    whole: bool = False,
) -> str:
    """When jobs arrive, in words."""
    from ganger.workload import FileSource
    from ganger.workload.sources import INTERARRIVAL_S

    if interarrival_s is None and isinstance(source, FileSource):
        part = {"train": "the first 80 %", "test": "the last 20 %", "all": "all"}[split]
        return f"{'' if whole else 'windows of '}{part} of its jobs, which arrive as they did"
    mean_s = INTERARRIVAL_S if interarrival_s is None else interarrival_s
    several = mean_s if isinstance(mean_s, Sequence) else (mean_s,)
    return f"random arrivals, one in {' or '.join(f'{s:g}' for s in several)} s on average"


def tell(found: "list[Verdict]") -> None:
    from ganger.workload.verdicts import refuse_misfits

    refuse_misfits(found)
    for verdict in found:
        print(f"ganger: {verdict.severity}: {verdict.message}", file=sys.stderr)
