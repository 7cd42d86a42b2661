"""Schedulers side by side on the same job lists, in the rows that `ganger evaluate` prints."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.errors import SimulationError
from ganger.evaluation.episodes import JobLists, ListedJobs
from ganger.evaluation.metrics import dag_slowdown, makespan_s, standard_error
from ganger.schedulers import Fair
from ganger.simulator.simulate import Cluster, CompiledScheduler
from ganger.workload.sources import JobSource, Split

BASELINE = Fair()


class Contender(NamedTuple):
    """A scheduler in a comparison."""

    scheduler: CompiledScheduler
    name: str
    mode: str = "heuristic"
    """How it decides: heuristic; for a learned one, argmax or sampled."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler over all job lists."""

    scheduler: str
    mode: str
    mean_jct_s: float
    """Mean over lists of the list's mean job completion time."""
    ratio_to_fair: float
    """Mean over lists of (mean completion time / that of plain fair on the same list)."""
    standard_error: float | None
    """Of ratio_to_fair: deviation over lists / sqrt(lists); None for a single list."""
    win_rate: float
    """Share of lists with a mean completion time below plain fair's."""
    p50_jct_s: float
    """Percentiles are over the jobs of all lists."""
    p95_jct_s: float
    p99_jct_s: float
    mean_slowdown: float
    """Mean over the jobs of all lists of max(1, completion time / max(critical path, 10 s))."""
    mean_makespan_s: float
    """Mean over lists of the time from the first arrival to the last job's end."""
    weighted_jct_s: float | None
    """Mean over lists of the weighted mean completion time; None where no weights are given."""
    episodes: int
    """Job lists."""


def evaluate(
    source: JobSource,
    schedulers: Sequence[CompiledScheduler | Contender],
    *,
    executors: int,
    jobs: int | None,
    interarrival_s: float | None,
    episodes: int,
    seed: int,
    move_delay_s: float = 2.0,
    split: Split = "test",
    weights: Mapping[str, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Run all schedulers on the same job lists, which training never draws.

    Plain fair is always run, and gets a row of its own if it is among the schedulers. A scheduler
    that is not a `Contender` goes by `str(scheduler)`. Its `run` is called from several threads.

    Args:
        jobs: per list; None: all of the log's, as one list.
        interarrival_s: mean time between random arrivals. None: the lists of a log are windows of
            it, with its own arrivals; any other jobs arrive every 25 s on average.
        episodes: job lists; of a log, at most as many as share no job.
        split: which of the jobs.
        weights: of users, for the weighted mean completion time; of any other user, 1.
        progress: called with the number of episodes done, and of all.
    """
    if episodes < 1:
        raise SimulationError(f"episodes is {episodes}; expected 1 or more")
    contenders = [
        entry if isinstance(entry, Contender) else Contender(entry, str(entry))
        for entry in schedulers
    ]
    lists = JobLists(
        source,
        cluster=Cluster(executors=executors, move_delay_s=move_delay_s),
        jobs=jobs,
        interarrival_s=interarrival_s,
        seed=seed,
        split=split,
        weights=weights,
    )
    indices = lists.first(episodes)
    runs = [contender.scheduler for contender in contenders]
    if BASELINE not in runs:
        runs.append(BASELINE)
    total = len(runs) * len(indices)

    def report(done: int) -> None:
        if progress is not None:
            progress(done, total)

    jct_s = lists.all_jct_s(runs, indices, progress=report)
    fair_s = jct_s[runs.index(BASELINE)].mean(axis=1)
    jobs_of = lists.jobs_of(indices)
    weighted = bool(weights)
    return [
        row(contender, jct_s[k], fair_s, jobs_of, weighted=weighted)
        for k, contender in enumerate(contenders)
    ]


def ratio_to_fair(mean_s: NDArray[np.float64], fair_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per list; 1 where fair takes no time, as then nobody needs any."""
    return np.divide(mean_s, fair_s, out=np.ones_like(mean_s), where=fair_s > 0)


def row(
    contender: Contender,
    jct_s: NDArray[np.float64],
    fair_s: NDArray[np.float64],
    jobs: ListedJobs,
    *,
    weighted: bool = False,
) -> Row:
    """The row of completion times [list, job], given fair's mean completion time of each list."""
    mean_s = jct_s.mean(axis=1)
    makespans_s = list(map(makespan_s, jobs.arrival_s, jobs.arrival_s + jct_s))
    weighted_s = np.average(jct_s, axis=1, weights=jobs.weight)
    ratio = ratio_to_fair(mean_s, fair_s)
    p50, p95, p99 = np.percentile(jct_s, [50, 95, 99]).tolist()
    return Row(
        scheduler=contender.name,
        mode=contender.mode,
        mean_jct_s=float(mean_s.mean()),
        ratio_to_fair=float(ratio.mean()),
        standard_error=standard_error(ratio) if len(ratio) > 1 else None,
        win_rate=float((mean_s < fair_s).mean()),
        p50_jct_s=p50,
        p95_jct_s=p95,
        p99_jct_s=p99,
        mean_slowdown=float(dag_slowdown(jct_s, jobs.path_s).mean()),
        mean_makespan_s=float(np.mean(makespans_s)),
        weighted_jct_s=float(weighted_s.mean()) if weighted else None,
        episodes=len(mean_s),
    )
