"""Schedulers side by side on the same job lists, in the rows that `ganger evaluate` prints."""

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.errors import SimulationError
from ganger.evaluation.episodes import JobLists, ListedJobs, Outcomes, Replay
from ganger.evaluation.metrics import (
    bounded_slowdown,
    dag_slowdown,
    makespan_s,
    standard_error,
    utilisation,
)
from ganger.schedulers import Fair, Fcfs, Heuristic, parse_scheduler, spellings
from ganger.simulator.cluster import cluster_of
from ganger.simulator.simulate import CompiledScheduler
from ganger.workload.classes import ExecutorClass
from ganger.workload.sources import JobSource, Split

BASELINE = Fair()
BATCH_BASELINE = Fcfs(backfill="easy")


def baseline_of(source: JobSource, split: Split = "test") -> Heuristic:
    """What schedulers are compared with unless something else is named.

    Fair sharing; where every job has a gang, which cannot share, what most batch systems do: first
    come first served with EASY backfilling.
    """
    gangs = all(any(s.gang for s in stages) for stages in source.templates(split))
    return BATCH_BASELINE if gangs else BASELINE


class Contender(NamedTuple):
    """A scheduler in a comparison."""

    scheduler: CompiledScheduler | Replay
    name: str
    mode: str = "heuristic"
    """How it decides: heuristic; for a learned one, argmax, sampled or plan; for a
    replay, log."""


def parse_contenders(text: str) -> list[Contender]:
    """Heuristics and `replay`, as in `replay,fcfs,sjf:backfill=easy`.

    Raises:
        SchedulerError: as `parse_schedulers`.
    """
    contenders = []
    for spelled in spellings(text):
        if spelled == "replay":
            contenders.append(Contender(Replay(), "replay", "log"))
        else:
            scheduler = parse_scheduler(spelled)
            contenders.append(Contender(scheduler, str(scheduler)))
    return contenders


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler over all job lists."""

    scheduler: str
    mode: str
    mean_jct_s: float
    """Mean over lists of the list's mean job completion time."""
    ratio: float
    """Mean over lists of (mean completion time / the baseline's on the same list)."""
    baseline: str
    standard_error: float | None
    """Of the ratio: deviation over lists / sqrt(lists); None for a single list."""
    win_rate: float
    """Share of lists with a mean completion time below the baseline's."""
    p50_jct_s: float
    """Percentiles are over the jobs of all lists."""
    p95_jct_s: float
    p99_jct_s: float
    mean_slowdown: float
    """Mean over the jobs of all lists of max(1, completion time / max(critical path, 10 s))."""
    mean_makespan_s: float
    """Mean over lists of the time from the first arrival to the last job's end."""
    mean_wait_s: float
    """From arrival to the first task, over the jobs of all lists."""
    p95_wait_s: float
    max_wait_s: float
    mean_bounded_slowdown: float
    """Over the jobs of all lists, of max(1, JCT / max(JCT - wait, 10 s))."""
    utilisation: float
    """Mean over lists of executor-seconds / (executors x makespan)."""
    killed: int
    """Jobs of all lists that were stopped at the run time they asked for."""
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
    episodes: int,
    seed: int,
    interarrival_s: float | None = None,
    classes: Sequence[ExecutorClass] = (),
    reconsider: bool = False,
    work_conserving: bool = False,
    move_delay_s: float = 2.0,
    split: Split = "test",
    weights: Mapping[str, float] | None = None,
    baseline: Heuristic | None = None,
    kill_at_limit: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Run all schedulers on the same job lists, which training never draws.

    The baseline is always run, and gets a row of its own if it is among the schedulers. A scheduler
    that is not a `Contender` goes by `str(scheduler)`. Its `run` is called from several threads.

    Args:
        jobs: per list; None: all of the log's, as one list.
        interarrival_s: mean time between random arrivals. None: the lists of a log are windows of
            it, with its own arrivals; any other jobs arrive every 25 s on average.
        classes: of the executors, whose counts sum to them; none: all meet every demand.
        reconsider: offer executors again after jobs arrived (`Cluster.reconsider`).
        work_conserving: let no executor wait for a stage that cannot start yet.
        episodes: job lists; of a log, at most as many as share no job.
        split: which of the jobs.
        weights: of users, for the weighted mean completion time; of any other user, 1.
        baseline: what ratios are to; `baseline_of` the source unless given.
        kill_at_limit: stop a gang when it has run as long as was asked for.
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
        cluster=cluster_of(
            classes,
            executors=executors,
            move_delay_s=move_delay_s,
            reconsider=reconsider,
            work_conserving=work_conserving,
        ),
        jobs=jobs,
        interarrival_s=interarrival_s,
        seed=seed,
        split=split,
        weights=weights,
        kill_at_limit=kill_at_limit,
    )
    baseline = baseline or baseline_of(source, split)
    indices = lists.first(episodes)
    runs = [contender.scheduler for contender in contenders]
    if baseline not in runs:
        runs.append(baseline)
    total = len(runs) * len(indices)

    def report(done: int) -> None:
        if progress is not None:
            progress(done, total)

    outcomes = lists.all_outcomes(runs, indices, progress=report)
    base = outcomes.of(runs.index(baseline))
    jobs_of = lists.jobs_of(indices)
    weighted = bool(weights)
    return [
        row(
            contender,
            outcomes.of(k),
            jobs_of,
            baseline=(str(baseline), base.jct_s.mean(axis=1)),
            executors=executors,
            weighted=weighted,
        )
        for k, contender in enumerate(contenders)
    ]


def ratio_to(mean_s: NDArray[np.float64], base_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per list; 1 where the baseline takes no time, as then nobody needs any."""
    return np.divide(mean_s, base_s, out=np.ones_like(mean_s), where=base_s > 0)


def row(
    contender: Contender,
    outcomes: Outcomes,
    jobs: ListedJobs,
    *,
    baseline: tuple[str, NDArray[np.float64]],
    executors: int,
    weighted: bool = False,
) -> Row:
    """The row of a scheduler's outcomes [list, ...].

    Args:
        baseline: its name, and its mean completion time of each list.
    """
    jct_s, wait_s = outcomes.jct_s, outcomes.wait_s
    mean_s, base_s = jct_s.mean(axis=1), baseline[1]
    makespans_s = list(map(makespan_s, jobs.arrival_s, jobs.arrival_s + jct_s))
    bounded = bounded_slowdown(0.0, wait_s, jct_s)  # on a clock that starts when a job arrives
    busy = map(utilisation, outcomes.busy_s, repeat(executors), makespans_s)
    weighted_s = np.average(jct_s, axis=1, weights=jobs.weight)
    ratio = ratio_to(mean_s, base_s)
    p50, p95, p99 = np.percentile(jct_s, [50, 95, 99]).tolist()
    return Row(
        scheduler=contender.name,
        mode=contender.mode,
        mean_jct_s=float(mean_s.mean()),
        ratio=float(ratio.mean()),
        baseline=baseline[0],
        standard_error=standard_error(ratio) if len(ratio) > 1 else None,
        win_rate=float((mean_s < base_s).mean()),
        p50_jct_s=p50,
        p95_jct_s=p95,
        p99_jct_s=p99,
        mean_slowdown=float(dag_slowdown(jct_s, jobs.path_s).mean()),
        mean_makespan_s=float(np.mean(makespans_s)),
        mean_wait_s=float(wait_s.mean()),
        p95_wait_s=float(np.percentile(wait_s, 95)),
        max_wait_s=float(wait_s.max()),
        mean_bounded_slowdown=float(bounded.mean()),
        utilisation=float(np.mean(list(busy))),
        killed=int(outcomes.killed.sum()),
        weighted_jct_s=float(weighted_s.mean()) if weighted else None,
        episodes=len(mean_s),
    )
