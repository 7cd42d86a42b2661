"""What people measure of a schedule. Times are seconds; arrays hold one value per job.

A job waits from its submission to its first task, and runs from there to its last. An unfinished
job has finish NaN: it makes sums and means NaN rather than vanish from them.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

BOUND_S = 10.0
"""Jobs shorter than this count as this long in the bounded slowdown."""


def wait_s(submit_s: ArrayLike, start_s: ArrayLike) -> Floats:
    """Start - submission."""
    return np.subtract(start_s, submit_s, dtype=np.float64)


def jct_s(submit_s: ArrayLike, finish_s: ArrayLike) -> Floats:
    """Job completion time, or turnaround: finish - submission."""
    return np.subtract(finish_s, submit_s, dtype=np.float64)


def slowdown(submit_s: ArrayLike, start_s: ArrayLike, finish_s: ArrayLike) -> Floats:
    """Turnaround / run time; infinite for a job that waited and then took no time."""
    run_s = np.subtract(finish_s, start_s, dtype=np.float64)
    turnaround_s = jct_s(submit_s, finish_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = turnaround_s / run_s
    return np.where((run_s == 0) & (turnaround_s == 0), 1.0, ratio)


def bounded_slowdown(
    submit_s: ArrayLike,
    start_s: ArrayLike,
    finish_s: ArrayLike,
    *,
    processors: ArrayLike = 1,
    bound_s: float = BOUND_S,
) -> Floats:
    """max(1, turnaround / (processors x max(run time, bound))).

    processors: more than 1 gives the per-processor slowdown.

    Source: Feitelson & Rudolph 1998, "Metrics and benchmarking for parallel job scheduling".
    """
    run_s = np.maximum(np.subtract(finish_s, start_s, dtype=np.float64), bound_s)
    bounded: Floats = jct_s(submit_s, finish_s) / (np.asarray(processors) * run_s)
    return np.maximum(1.0, bounded)


def dag_slowdown(jct_s: ArrayLike, path_s: ArrayLike, *, bound_s: float = BOUND_S) -> Floats:
    """max(1, completion time / max(critical path, bound)): the bounded slowdown of DAG jobs.

    How long a DAG runs depends on the executors that it gets. Its critical path does not, and is
    the shortest that the job is expected to take.
    """
    shortest_s = np.maximum(np.asarray(path_s, np.float64), bound_s)
    return np.maximum(1.0, np.asarray(jct_s, np.float64) / shortest_s)


def makespan_s(submit_s: ArrayLike, finish_s: ArrayLike) -> float:
    """Last finish - first submission."""
    return float(np.max(finish_s) - np.min(submit_s))


def utilisation(busy_s: float, executors: int, horizon_s: float) -> float:
    """Busy executor-seconds / (executors x horizon); say which horizon it is."""
    return busy_s / (executors * horizon_s) if horizon_s > 0 else 0.0


def jain_index(values: ArrayLike) -> float:
    """Fairness over users: (sum x)^2 / (n sum x^2); 1 is equal, 1/n is all for one.

    Source: Jain, Chiu & Hawe 1984.
    """
    x = np.asarray(values, np.float64)
    squares = float(np.sum(x * x))
    return float(np.sum(x)) ** 2 / (len(x) * squares) if squares > 0 else 1.0


def standard_error(values: ArrayLike) -> float:
    """Of the mean of independent values: deviation / sqrt(n); NaN for a single one."""
    x = np.asarray(values, np.float64)
    return float(np.std(x, ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
