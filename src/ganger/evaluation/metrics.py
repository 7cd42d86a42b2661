"""What people measure of a schedule. Times are seconds; arrays hold one value per job.

A job waits from its submission to its first task, and runs from there to its last. An unfinished
job has finish NaN: it makes sums and means NaN rather than vanish from them.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

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
    the shortest that the job is expected to take. Of a job that is one gang it is the run time.
    """
    shortest_s = np.maximum(np.asarray(path_s, np.float64), bound_s)
    return np.maximum(1.0, np.asarray(jct_s, np.float64) / shortest_s)


def makespan_s(submit_s: ArrayLike, finish_s: ArrayLike) -> float:
    """Last finish - first submission."""
    return float(np.max(finish_s) - np.min(submit_s))


def utilisation(busy_s: float, executors: int, horizon_s: float) -> float:
    """Busy executor-seconds / (executors x horizon); say which horizon it is."""
    return busy_s / (executors * horizon_s) if horizon_s > 0 else 0.0


class Steps(NamedTuple):
    """A number over time: values[i] from times_s[i] on, until the next one."""

    times_s: Floats
    values: NDArray[np.int64]

    def mean(self, begin_s: float, end_s: float) -> float:
        """Over the time from begin to end; the value at begin if that is no time."""
        if end_s <= begin_s:
            return float(self.at(begin_s))
        inside = (self.times_s > begin_s) & (self.times_s < end_s)
        edges = np.concatenate(([begin_s], self.times_s[inside], [end_s]))
        values = np.concatenate(([self.at(begin_s)], self.values[inside]))
        return float(np.dot(values, np.diff(edges))) / (end_s - begin_s)

    def at(self, time_s: float) -> int:
        """The value at that time; 0 before the first step."""
        i = int(np.searchsorted(self.times_s, time_s, side="right")) - 1
        return int(self.values[i]) if i >= 0 else 0

    def max(self) -> int:
        return int(self.values.max(initial=0))


def level(begin_s: ArrayLike, end_s: ArrayLike, weight: ArrayLike = 1) -> Steps:
    """How many (or of what weight) have begun and not ended, over time; NaN: never.

    What happens at one instant happens at once: what begins and ends there is never counted.
    """
    begin, end = np.asarray(begin_s, np.float64), np.asarray(end_s, np.float64)
    weights = np.broadcast_to(np.asarray(weight, np.int64), begin.shape)
    times = np.concatenate((begin, end))
    changes = np.concatenate((weights, -weights))
    # What never begins does not end, either.
    happens = np.isfinite(times) & np.tile(np.isfinite(begin), 2)
    times_s, instant = np.unique(times[happens], return_inverse=True)
    net = np.zeros(len(times_s), np.int64)
    np.add.at(net, instant, changes[happens])
    return Steps(times_s, np.cumsum(net))


def queue_length(submit_s: ArrayLike, start_s: ArrayLike) -> Steps:
    """Jobs that were submitted and have not started, over time; a start of NaN: never.

    Clocks differ: a job that started before it was submitted never waited.
    """
    return level(submit_s, np.maximum(start_s, submit_s))


def user_means(users: Sequence[Hashable], values: ArrayLike) -> dict[Hashable, float]:
    """Each user's mean value over his or her jobs, in order of appearance; None is nobody."""
    of_user: dict[Hashable, list[float]] = {}
    for user, value in zip(users, np.asarray(values, np.float64).tolist(), strict=True):
        if user is not None:
            of_user.setdefault(user, []).append(value)
    return {user: float(np.mean(own)) for user, own in of_user.items()}


def jain_index(values: ArrayLike) -> float:
    """Fairness over users: (sum x)^2 / (n sum x^2); 1 is equal, 1/n is all for one.

    Source: Jain, Chiu & Hawe 1984.
    """
    x = np.asarray(values, np.float64)
    largest = float(np.max(x, initial=0.0))
    if largest == 0:
        return 1.0
    x = x / largest  # squares of what is tiny or huge are not exact
    return float(np.sum(x)) ** 2 / (len(x) * float(np.sum(x * x)))


def standard_error(values: ArrayLike) -> float:
    """Of the mean of independent values: deviation / sqrt(n); NaN for a single one."""
    x = np.asarray(values, np.float64)
    return float(np.std(x, ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
