"""Clusters and loads to compare on, and the cluster that is large enough."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ganger.errors import ConfigError, WorkloadError
from ganger.evaluation.episodes import JobLists
from ganger.simulator.simulate import CompiledScheduler
from ganger.workload import FileSource, JobSource, Split, Workload, arrivals_of
from ganger.workload.convert import scale_load
from ganger.workload.verdicts import measured_work_s, offered_load


def loads_of(spec: str) -> list[float]:
    """Offered loads of text as BEGIN:END:STEP, "0.5:1.1:0.1", both ends included.

    Raises:
        ConfigError: it is none.
    """
    try:
        begin, end, step = map(float, spec.split(":"))
    except ValueError:
        begin = end = step = np.nan
    if not (0 < begin <= end < np.inf and 0 < step < np.inf and (end - begin) / step < 1000):
        raise ConfigError(
            f"--load-sweep {spec!r}: expected BEGIN:END:STEP, as 0.5:1.1:0.1, of loads above 0"
        )
    count = int((end - begin) / step + 1e-9) + 1
    return [round(begin + k * step, 9) for k in range(count)]


def under_load(
    source: JobSource, split: Split, interarrival_s: float | None, load: float, executors: int
) -> tuple[JobSource, Split, float | None]:
    """Source, split and time between arrivals under which so much work arrives.

    Random arrivals come closer together or further apart; those of a log are scaled.

    Raises:
        WorkloadError: all jobs arrive at once, so that there is no load to scale.
    """
    arrivals = arrivals_of(source, split, interarrival_s)
    if not isinstance(arrivals, tuple):
        works_s = [measured_work_s(stages) for stages in source.templates(split)]
        return source, split, float(np.mean(works_s)) / (load * executors)
    own = offered_load(arrivals, executors)
    if own is None:
        raise WorkloadError(
            f"{source.name}: its jobs arrive all at once; there is no load to scale"
        )
    assert isinstance(source, FileSource)
    trace = scale_load(Workload(arrivals), load / own)
    return replace(source, trace=trace), "all", interarrival_s


def enough_executors(
    lists_on: Callable[[int], JobLists],
    scheduler: CompiledScheduler,
    windows: range,
    target_s: float,
    most: int,
) -> dict[str, Any] | None:
    """The smallest cluster, found by bisection, on which mean JCT is no more than the target.

    A cluster that a job of the windows does not fit is too small. None: nor is `most` enough.

    Returns:
        executors, mean_jct_s, and executor_hours: executors x makespan, mean over windows.
    """

    def tried(executors: int) -> dict[str, Any] | None:
        try:
            lists = lists_on(executors)
        except WorkloadError:
            return None
        jct_s = lists.all_jct_s([scheduler], windows)[0]
        arrival_s = lists.jobs_of(windows).arrival_s
        makespan_s = (arrival_s + jct_s).max(axis=1) - arrival_s.min(axis=1)
        return {
            "executors": executors,
            "mean_jct_s": float(jct_s.mean()),
            "executor_hours": float(executors * makespan_s.mean() / 3600),
        }

    best = tried(most)
    if best is None or best["mean_jct_s"] > target_s:
        return None
    too_few, enough = 0, most
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        found = tried(middle)
        if found is not None and found["mean_jct_s"] <= target_s:
            enough, best = middle, found
        else:
            too_few = middle
    return best
