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

from ganger.errors import SimulationError
from ganger.evaluation.compare import Contender, Row, baseline_of, ratio_to, row
from ganger.evaluation.episodes import JobLists, Outcomes
from ganger.schedulers import (
    SCHEDULERS,
    CriticalPathFirst,
    Fair,
    Fifo,
    Heuristic,
    KShortest,
    Srpt,
    WeightedFair,
)
from ganger.schedulers.backfill import BACKFILLS
from ganger.schedulers.order import BATCH_ORDERS
from ganger.schedulers.rule import Leftover, Source
from ganger.simulator.simulate import Cluster
from ganger.streams import Stream
from ganger.workload.sources import JobSource, Split, Templates

_FIRST_LISTS = 4


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The best of one family."""

    family: str
    scheduler: str
    """With its parameters, as `parse_scheduler` takes it."""
    training_ratio: float
    """Mean ratio to the baseline on the training lists that chose it; lower than one can hope."""
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


def families(executors: int, templates: Templates = ()) -> dict[str, list[Heuristic]]:
    """Candidates of each family for a cluster of this size.

    Jobs that are all one gang need nobody who shares executors out, jobs without gangs nobody who
    overtakes gangs; a mixture is tried with all.

    Args:
        templates: the jobs, if that matters.
    """
    rigid = [len(stages) == 1 and stages[0].gang for stages in templates]
    gangs = any(stage.gang for stages in templates for stage in stages)
    found = {} if rigid and all(rigid) else _sharing(executors)
    return found | (_batch() if gangs else {})


def _batch() -> dict[str, list[Heuristic]]:
    """Orders of a queue, each without and with backfilling."""
    return {
        name: [SCHEDULERS[name](backfill=backfill) for backfill in BACKFILLS]
        for name in BATCH_ORDERS
    }


def _sharing(executors: int) -> dict[str, list[Heuristic]]:
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
    episodes: int,
    seed: int,
    interarrival_s: float | None = None,
    move_delay_s: float = 2.0,
    baseline: Heuristic | None = None,
    kill_at_limit: bool = False,
    reconsider: bool = False,
    work_conserving: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> TuneReport:
    """Find the best parameters of every family of heuristics.

    Args:
        jobs: per list.
        interarrival_s: mean time between random arrivals. None: the lists of a log are windows of
            it, with its own arrivals; any other jobs arrive every 25 s on average.
        episodes: job lists of the last round of the search, and held-out lists; 4 or more. Of a
            log, at most as many as share no job.
        baseline: what ratios are to; `baseline_of` the source unless given.
        kill_at_limit: stop a gang when it has run as long as was asked for.
        reconsider: offer executors again after jobs arrived (`Cluster.reconsider`).
        work_conserving: let no executor wait for a stage that cannot start yet.
        progress: called with what is being done, and how much of it.

    Raises:
        SimulationError: the cluster, or the number of lists, makes no sense.
    """
    if episodes < _FIRST_LISTS:
        raise SimulationError(f"episodes is {episodes}; expected {_FIRST_LISTS} or more")

    def lists(stream: Stream, split: Split) -> JobLists:
        return JobLists(
            source,
            cluster=Cluster(
                executors=executors,
                move_delay_s=move_delay_s,
                reconsider=reconsider,
                work_conserving=work_conserving,
            ),
            jobs=jobs,
            interarrival_s=interarrival_s,
            seed=seed,
            stream=stream,
            split=split,
            kill_at_limit=kill_at_limit,
        )

    def run(
        lists: JobLists, schedulers: Sequence[Heuristic], indices: range, what: str
    ) -> Outcomes:
        def report(done: int) -> None:
            if progress is not None:
                progress(what, done, len(schedulers) * len(indices))

        return lists.all_outcomes(schedulers, indices, progress=report)

    training, held_out = lists(Stream.TUNING, "train"), lists(Stream.VALIDATION, "test")
    last = len(training.first(episodes))
    baseline = baseline or baseline_of(source)
    alive = families(executors, source.templates("train"))
    candidates = sum(len(family) for family in alive.values())
    ratios: dict[Heuristic, list[float]] = defaultdict(list)  # on each list so far
    seen = 0
    while seen < last:
        new = range(seen, min(max(2 * seen, _FIRST_LISTS), last))
        running = [scheduler for family in alive.values() for scheduler in family]
        what = f"{len(running)} schedulers on training lists {new.start + 1} to {new.stop}"
        mean_s = run(training, [baseline, *running], new, what).jct_s.mean(axis=2)
        for scheduler, of_lists_s in zip(running, mean_s[1:], strict=True):
            ratios[scheduler].extend(ratio_to(of_lists_s, mean_s[0]).tolist())
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
    outcomes = run(held_out, [baseline, *(s for _, s in best)], unseen, what)
    base = str(baseline), outcomes.of(0).jct_s.mean(axis=1)
    jobs_of = held_out.jobs_of(unseen)
    return TuneReport(
        best=str(best[0][1]),
        families=tuple(
            Tuned(
                family=name,
                scheduler=str(scheduler),
                training_ratio=fmean(ratios[scheduler]),
                held_out=row(
                    Contender(scheduler, str(scheduler)),
                    outcomes.of(k),
                    jobs_of,
                    baseline=base,
                    executors=executors,
                ),
            )
            for k, (name, scheduler) in enumerate(best, start=1)
        ),
        candidates=candidates,
        lists=last,
    )
