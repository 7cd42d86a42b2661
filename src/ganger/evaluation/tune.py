"""Search the parameters of the heuristics on a workload's training lists: the bar for learning.

Successive halving: all candidates run on a few lists, the better half of each family goes on to
twice as many, until one of each family is left. Those meet plain fair on held-out lists.

Source: Jamieson & Talwalkar 2016, arXiv:1502.07943.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.errors import SimulationError
from ganger.evaluation.compare import BASELINE, Contender, Row, ratio_to_fair, row
from ganger.evaluation.episodes import JobLists
from ganger.schedulers import (
    CriticalPathFirst,
    Fair,
    Fifo,
    Heuristic,
    KShortest,
    Srpt,
    WeightedFair,
)
from ganger.schedulers.rule import Leftover, Source
from ganger.simulator.simulate import Cluster
from ganger.streams import Stream
from ganger.workload.sources import JobSource, Split

_FIRST_LISTS = 4


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The best of one family."""

    family: str
    scheduler: str
    """With its parameters, as `parse_scheduler` takes it."""
    training_ratio: float
    """Mean ratio to fair on the training lists that chose it; lower than can be hoped for."""
    held_out: Row
    """On lists that no candidate was chosen by."""


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """The families, best first by their training lists."""

    best: str
    """The scheduler to take: chosen by the training lists, not by the held-out ones."""
    families: tuple[Tuned, ...]
    candidates: int
    lists: int
    """Training lists of the last round; `held_out.episodes` are the held-out ones."""


def families(executors: int) -> dict[str, list[Heuristic]]:
    """Candidates of each family for a cluster of this size."""
    sizes = (2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 60, 80, 120, 160, 240, 320)
    caps = [c for c in sizes if c <= executors] or [1]
    leftovers: tuple[Leftover, ...] = ("idle", "first")
    sources: tuple[Source, ...] = ("capped", "ordered")
    cs = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
    return {
        "fifo": [Fifo()],
        "fair": [Fair(), Fair(source="capped")],
        "wfair": [
            WeightedFair(alpha=alpha, leftover=leftover)
            for alpha in (-2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
            for leftover in leftovers
        ],
        "srpt": [Srpt(source=source) for source in ("first", *sources)],
        "srpt:cap=const": [
            Srpt(cap="const", c=float(c), source=source, leftover=leftover)
            for c, source, leftover in product(caps, sources, leftovers)
        ],
        "srpt:cap=sqrt": [
            Srpt(cap="sqrt", c=c, source=source, leftover=leftover)
            for c, source, leftover in product(cs, sources, leftovers)
        ],
        "srpt:cap=useful": [
            Srpt(cap="useful", c=c, a=a, source=source, leftover=leftover)
            for c, a, source, leftover in product(
                (0.05, 0.1, 0.2, 0.3, 0.5), (0.0, 0.25, 0.5, 0.75), sources, leftovers
            )
        ],
        "cpf": [CriticalPathFirst()],
        "kshortest": [KShortest(k=k) for k in (1, 2, 3, 4, 5, 6, 8, 12)],
    }


def tune(
    source: JobSource,
    *,
    executors: int,
    jobs: int,
    interarrival_s: float | None,
    episodes: int,
    seed: int,
    move_delay_s: float = 2.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> TuneReport:
    """Find the best parameters of every family of heuristics.

    Args:
        jobs: per list.
        interarrival_s: mean time between random arrivals. None: the lists of a log are windows of
            it, with its own arrivals; any other jobs arrive every 25 s on average.
        episodes: job lists of the last round of the search, and held-out lists; 4 or more. Of a
            log, at most as many as share no job.
        progress: called with what is being done, and how much of it.

    Raises:
        SimulationError: the cluster, or the number of lists, makes no sense.
    """
    if episodes < _FIRST_LISTS:
        raise SimulationError(f"episodes is {episodes}; expected {_FIRST_LISTS} or more")

    def lists(stream: Stream, split: Split) -> JobLists:
        return JobLists(
            source,
            cluster=Cluster(executors=executors, move_delay_s=move_delay_s),
            jobs=jobs,
            interarrival_s=interarrival_s,
            seed=seed,
            stream=stream,
            split=split,
        )

    def run(
        lists: JobLists, schedulers: Sequence[Heuristic], indices: range, what: str
    ) -> NDArray[np.float64]:
        def report(done: int) -> None:
            if progress is not None:
                progress(what, done, len(schedulers) * len(indices))

        return lists.all_jct_s(schedulers, indices, progress=report)

    training, held_out = lists(Stream.TUNING, "train"), lists(Stream.VALIDATION, "test")
    last = len(training.first(episodes))
    alive = families(executors)
    candidates = sum(len(family) for family in alive.values())
    ratios: dict[Heuristic, list[float]] = defaultdict(list)  # to fair, on each list so far
    seen = 0
    while seen < last:
        new = range(seen, min(max(2 * seen, _FIRST_LISTS), last))
        running = [scheduler for family in alive.values() for scheduler in family]
        what = f"{len(running)} schedulers on training lists {new.start + 1} to {new.stop}"
        mean_s = run(training, [BASELINE, *running], new, what).mean(axis=2)
        for scheduler, of_lists_s in zip(running, mean_s[1:], strict=True):
            ratios[scheduler].extend(ratio_to_fair(of_lists_s, mean_s[0]).tolist())
        seen = new.stop
        for name, family in alive.items():
            family.sort(key=lambda scheduler: fmean(ratios[scheduler]))
            alive[name] = family[: 1 if seen == last else (len(family) + 1) // 2]

    best = sorted(
        ((name, family[0]) for name, family in alive.items()),
        key=lambda entry: fmean(ratios[entry[1]]),
    )
    what = "the best of each family on held-out lists"
    unseen = held_out.first(episodes)
    jct_s = run(held_out, [BASELINE, *(s for _, s in best)], unseen, what)
    fair_s = jct_s[0].mean(axis=1)
    jobs_of = held_out.jobs_of(unseen)
    return TuneReport(
        best=str(best[0][1]),
        families=tuple(
            Tuned(
                family=name,
                scheduler=str(scheduler),
                training_ratio=fmean(ratios[scheduler]),
                held_out=row(Contender(scheduler, str(scheduler)), of_scheduler_s, fair_s, jobs_of),
            )
            for (name, scheduler), of_scheduler_s in zip(best, jct_s[1:], strict=True)
        ),
        candidates=candidates,
        lists=last,
    )
