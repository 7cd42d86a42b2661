"""What the rows of a comparison say: figures of each scheduler, and of every pair, in words too.

Everything is computed from the rows that are kept, so that each figure can be traced to them.
Windows are what is compared in pairs, and what intervals are drawn over.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.evaluation.metrics import dag_slowdown

if TYPE_CHECKING:
    from pyarrow import Table

Floats = NDArray[np.float64]
DRAWS = 10_000
LEVEL = 0.95
MOST_USERS = 20


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the jobs, under one scheduler: of a size, or of a user."""

    name: str
    jobs: int
    mean_jct_s: float
    mean_wait_s: float
    mean_slowdown: float


class SchedulerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler on one cluster under one load."""

    scheduler: str
    mode: str
    executors: int
    load: float | None
    mean_jct_s: float
    """Mean over windows of the window's mean; of unfinished jobs, the least that it can be."""
    p50_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    mean_slowdown: float
    """Of max(1, completion time / max(critical path, 10 s))."""
    mean_makespan_s: float
    utilisation: float
    unfinished: int
    by_size: list[Group]
    """By executor-seconds, a class for each power of ten."""
    by_user: list[Group]
    """Those with most jobs."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduler a against b, window by window."""

    a: str
    b: str
    executors: int
    load: float | None
    ratio: float
    """Mean over windows of a's mean JCT / b's."""
    low: float | None
    """Bootstrap interval of the ratio at 95 %; None of a single window."""
    high: float | None
    adjusted_low: float | None
    """The same at 1 - 5 % / comparisons (Bonferroni)."""
    adjusted_high: float | None
    verdict: str
    """By the adjusted interval: lower, higher, or not told apart."""
    comparisons: int
    windows: int
    better_in: int
    """Windows in which a's mean is below b's."""
    worst_window: int
    worst_ratio: float
    sentence: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All that a comparison says."""

    settings: dict[str, Any]
    schedulers: list[SchedulerFigures]
    pairs: list[Pair]
    capacity: list[dict[str, Any]]


class Jobs(NamedTuple):
    """The jobs of one scheduler, cluster and load: each [window, job]."""

    name: str
    mode: str
    windows: list[int]
    arrival_s: Floats
    jct_s: Floats
    """NaN: unfinished."""
    wait_s: Floats
    work_s: Floats
    path_s: Floats
    busy_s: Floats
    users: NDArray[Any]

    @property
    def label(self) -> str:
        return f"{self.name} ({self.mode})" if self.mode in ("argmax", "sampled") else self.name


def settings_of(table: "Table") -> list[tuple[int, float | None]]:
    """Clusters and loads that were compared, in order of appearance."""
    both = zip(table["executors"].to_pylist(), table["load"].to_pylist(), strict=True)
    return list(dict.fromkeys(both))


def jobs_of(table: "Table", executors: int, load: float | None) -> list[Jobs]:
    """The rows of one cluster and load, by scheduler in order of appearance."""
    import pyarrow.compute as pc

    same_load = pc.is_null(table["load"]) if load is None else pc.equal(table["load"], load)
    table = table.filter(pc.and_(pc.equal(table["executors"], executors), same_load))
    found = []
    names = zip(table["scheduler"].to_pylist(), table["mode"].to_pylist(), strict=True)
    for name, mode in dict.fromkeys(names):
        own = table.filter(
            pc.and_(pc.equal(table["scheduler"], name), pc.equal(table["mode"], mode))
        )
        windows = list(dict.fromkeys(own["window"].to_pylist()))

        def column(of: str, rows: "Table" = own, lists: int = len(windows)) -> NDArray[Any]:
            values = rows[of].to_numpy(zero_copy_only=False)
            return np.asarray(values).reshape(lists, -1)

        found.append(
            Jobs(
                name, mode, windows,
                column("submission_time"), column("turnaround_time"), column("waiting_time"),
                column("work_s"), column("critical_path_s"), column("window_busy_s")[:, 0],
                column("user"),
            )
        )  # fmt: skip
    return _with_bounds(found)


def _with_bounds(found: list[Jobs]) -> list[Jobs]:
    """Waits of what never started, and the least that an unfinished job can have taken, known.

    That is until the last finish in its window that any scheduler reached.
    """
    ends = np.array([np.nanmax(jobs.arrival_s + jobs.jct_s, axis=1) for jobs in found])
    end_s = np.nanmax(ends, axis=0)[:, None]
    return [
        jobs._replace(
            wait_s=np.where(np.isnan(jobs.wait_s), end_s - jobs.arrival_s, jobs.wait_s),
        )
        for jobs in found
    ]


def least_jct_s(jobs: Jobs, end_s: Floats) -> Floats:
    """Completion times, [window, job]; of unfinished jobs, up to the end of the window."""
    return np.where(np.isnan(jobs.jct_s), end_s[:, None] - jobs.arrival_s, jobs.jct_s)


def window_ends_s(every: Sequence[Jobs]) -> Floats:
    """The last finish in each window under any scheduler."""
    ends = np.array([np.nanmax(jobs.arrival_s + jobs.jct_s, axis=1) for jobs in every])
    return np.asarray(np.nanmax(ends, axis=0))


def figures(jobs: Jobs, end_s: Floats, executors: int, load: float | None) -> SchedulerFigures:
    """One scheduler's figures."""
    jct_s = least_jct_s(jobs, end_s)
    makespan_s = np.max(jobs.arrival_s + jct_s, axis=1) - jobs.arrival_s.min(axis=1)
    slowdown = dag_slowdown(jct_s, jobs.path_s)

    def group(name: str, of: NDArray[np.bool_]) -> Group:
        return Group(
            name=name,
            jobs=int(of.sum()),
            mean_jct_s=float(jct_s[of].mean()),
            mean_wait_s=float(jobs.wait_s[of].mean()),
            mean_slowdown=float(slowdown[of].mean()),
        )

    p50, p95, p99 = np.percentile(jct_s, [50, 95, 99]).tolist()
    classes = size_classes(jobs.work_s)
    users, counts = np.unique(jobs.users[jobs.users != None], return_counts=True)  # noqa: E711
    most = users[np.argsort(-counts, kind="stable")][:MOST_USERS]
    return SchedulerFigures(
        scheduler=jobs.name,
        mode=jobs.mode,
        executors=executors,
        load=load,
        mean_jct_s=float(jct_s.mean(axis=1).mean()),
        p50_jct_s=p50,
        p95_jct_s=p95,
        p99_jct_s=p99,
        mean_wait_s=float(jobs.wait_s.mean()),
        mean_slowdown=float(slowdown.mean()),
        mean_makespan_s=float(makespan_s.mean()),
        utilisation=float(np.mean(jobs.busy_s / np.maximum(executors * makespan_s, 1e-9))),
        unfinished=int(np.isnan(jobs.jct_s).sum()),
        by_size=[group(class_name(c), classes == c) for c in np.unique(classes).tolist()],
        by_user=[group(str(user), jobs.users == user) for user in most.tolist()],
    )


def size_classes(work_s: Floats) -> NDArray[np.int64]:
    """The power of ten at or below a job's executor-seconds; 0 below ten."""
    return np.floor(np.log10(np.maximum(work_s, 1.0)) + 1e-12).astype(np.int64).clip(1) - 1


def class_name(size: int) -> str:
    """Of a class of `size_classes`, in executor-seconds."""
    low, high = 10 ** (size + 1), 10 ** (size + 2)
    return f"less than {high:,}" if size == 0 else f"{low:,} to {high:,}"


def interval(ratios: Floats, level: float) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of independent values; always the same draws."""
    drawn = np.random.default_rng(0).integers(0, len(ratios), (DRAWS, len(ratios)))
    means = ratios[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def pairs(
    every: Sequence[Jobs], executors: int, load: float | None, comparisons: int | None = None
) -> list[Pair]:
    """All pairs, the better one first; best against the others first.

    Args:
        comparisons: that are made in all; the pairs' number unless given.
    """
    end_s = window_ends_s(every)
    jct_s = [least_jct_s(jobs, end_s) for jobs in every]
    order = sorted(range(len(every)), key=lambda k: float(jct_s[k].mean()))
    count = comparisons or len(every) * (len(every) - 1) // 2
    return [
        _pair(every[a], every[b], jct_s[a], jct_s[b], count, executors, load)
        for a, b in combinations(order, 2)
    ]


def _pair(
    a: Jobs,
    b: Jobs,
    a_s: Floats,
    b_s: Floats,
    comparisons: int,
    executors: int,
    load: float | None,
) -> Pair:
    mean_a, mean_b = a_s.mean(axis=1), b_s.mean(axis=1)
    ratios = np.divide(mean_a, mean_b, out=np.ones_like(mean_a), where=mean_b > 0)
    ratio = float(ratios.mean())
    bounds: list[float | None] = [None] * 4
    if len(ratios) > 1:
        bounds = [*interval(ratios, LEVEL), *interval(ratios, 1 - (1 - LEVEL) / comparisons)]
    low, high, adjusted_low, adjusted_high = bounds
    verdict = "not told apart"
    if adjusted_high is not None and adjusted_high < 1:
        verdict = "lower"
    elif adjusted_low is not None and adjusted_low > 1:
        verdict = "higher"
    worst = int(np.argmax(ratios))
    better = int((mean_a < mean_b).sum())
    return Pair(
        a=a.label,
        b=b.label,
        executors=executors,
        load=load,
        ratio=ratio,
        low=low,
        high=high,
        adjusted_low=adjusted_low,
        adjusted_high=adjusted_high,
        verdict=verdict,
        comparisons=comparisons,
        windows=len(ratios),
        better_in=better,
        worst_window=a.windows[worst],
        worst_ratio=float(ratios[worst]),
        sentence=_sentence(a, b, a_s, b_s, ratios, (low, high), verdict),
    )


def _sentence(
    a: Jobs,
    b: Jobs,
    a_s: Floats,
    b_s: Floats,
    ratios: Floats,
    bounds: tuple[float | None, float | None],
    verdict: str,
) -> str:
    windows, (low, high) = len(ratios), bounds
    change = 100 * (float(ratios.mean()) - 1)
    where = "On this one window" if windows == 1 else f"On these {windows} windows"
    said = f"{where} {a.label}'s mean JCT is {abs(change):.1f} % "
    if low is not None and high is not None:
        sign = -1 if change < 0 else 1
        ends = sorted(sign * 100 * (bound - 1) for bound in (low, high))
        said += f"({ends[0]:.1f} to {ends[1]:.1f}) "
    said += f"{'lower' if change < 0 else 'higher'} than {b.label}'s"
    if windows == 1:
        said += ", which is no proof"
    elif verdict == "not told apart":
        said += ", which these windows do not tell apart"
    worse = int((ratios > 1).sum())
    said += f"; it is worse in {worse} of {windows}"
    return said + f"; {_sizes(a, a_s, b_s)}."


def _sizes(a: Jobs, a_s: Floats, b_s: Floats) -> str:
    """Which jobs pay for it."""
    classes = size_classes(a.work_s)
    change = {
        size: float(a_s[classes == size].mean() / max(b_s[classes == size].mean(), 1e-9) - 1)
        for size in np.unique(classes).tolist()
    }
    size, most = max(change.items(), key=lambda item: item[1])
    if most <= 0.005:
        return "jobs of no size take longer"
    share = float((classes == size).mean())
    return (
        f"jobs of {class_name(size)} executor-seconds ({share:.0%} of all) take {100 * most:.0f} % "
        "longer"
    )


def summarise(
    table: "Table", settings: dict[str, Any], capacity: list[dict[str, Any]] | None = None
) -> Summary:
    """Everything that the rows say."""
    found: list[SchedulerFigures] = []
    compared: list[Pair] = []
    of_settings = settings_of(table)
    every = [jobs_of(table, *setting) for setting in of_settings]
    comparisons = sum(len(jobs) * (len(jobs) - 1) // 2 for jobs in every)
    for (executors, load), schedulers in zip(of_settings, every, strict=True):
        end_s = window_ends_s(schedulers)
        found += [figures(jobs, end_s, executors, load) for jobs in schedulers]
        compared += pairs(schedulers, executors, load, max(comparisons, 1))
    return Summary(settings=settings, schedulers=found, pairs=compared, capacity=capacity or [])
