"""How many tasks an application could run at once, and when: its executors' task slots.

A Spark executor of c cores runs several tasks side by side; each such place is a slot. A slot is
what Ganger's simulator calls an executor. Times are milliseconds, as in the log.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from ganger.workload.model import MAX_LEVEL
from ganger.workload.readers.spark.events import ResourceProfile

Kind = Literal["fresh", "first", "rest"]

IDLE_MS = 100
"""A slot that was free for longer than this was idle. What is shorter is the time that Spark needs
to hand out the next task."""

FOREVER = 1 << 62
"""When an executor is removed whose end, or whose application's, is not known yet."""


@dataclass(slots=True)
class Executor:
    """A Spark executor as far as the log tells."""

    cores: int | None
    """None: the log does not say that it was added."""
    profile: int
    added_ms: int
    removed_ms: int = FOREVER
    slots: int = 0


def slots_of(executor: Executor, profile: ResourceProfile | None, task_cpus: int) -> int:
    """How many tasks an executor of known cores runs at once.

    A task takes what its resource profile says of each resource (cores, and GPUs if they are
    listed), or `task_cpus` cores where there is no profile.
    """
    cores = executor.cores or 0
    if profile is None:
        return max(1, cores // max(1, task_cpus))
    fits = float(cores)
    for name, request in profile.task.items():
        if request.amount <= 0.0:
            continue
        if name == "cpus":
            fits = min(fits, cores / request.amount)
        elif name in profile.executor:
            fits = min(fits, profile.executor[name].amount / request.amount)
    return max(1, min(MAX_LEVEL, int(fits)))


def most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """The most of (start, end) spans that overlap; one that ends as another starts does not."""
    changes = sorted(
        change for start, end in spans for change in ((start, 1), (max(end, start), -1))
    )
    return max(accumulate(step for _, step in changes), default=0)


class SlotCount:
    """The slots of executors, as a function of time."""

    def __init__(self, executors: Iterable[Executor]) -> None:
        changes: dict[int, int] = {}
        for executor in executors:
            begin, end = executor.added_ms, executor.removed_ms
            changes[begin] = changes.get(begin, 0) + executor.slots
            changes[end] = changes.get(end, 0) - executor.slots
        self.times = sorted(changes)
        self.counts = list(accumulate(changes[time] for time in self.times))

    def at(self, time_ms: int) -> int:
        """Slots at a moment; 0 before the first executor came."""
        i = bisect_right(self.times, time_ms)
        return self.counts[i - 1] if i else 0

    def most(self) -> int:
        return max(self.counts, default=0)


class Slots:
    """The slots of one executor, and what each of them did last.

    A log says on which executor a task ran, not on which of its cores. A task is taken to run on
    the free slot that was freed last, or if none is free (a task may be reported as ended after the
    next one started) on the one that is freed first.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.used: list[tuple[int, int, int]] = []
        """(free from, job, stage), ascending."""

    def run(self, launch_ms: int, finish_ms: int, job: int, stage: int) -> Kind:
        """Run a task; tasks must come by launch time. Returns what the slot did before."""
        i = bisect_left(self.used, (launch_ms + 1,)) - 1
        if i >= 0:
            kind = self._kind(self.used.pop(i), launch_ms, job, stage)
        elif len(self.used) < self.count:
            kind = "fresh"
        else:
            kind = self._kind(self.used.pop(0), launch_ms, job, stage)
        insort(self.used, (finish_ms, job, stage))
        return kind

    @staticmethod
    def _kind(last: tuple[int, int, int], launch_ms: int, job: int, stage: int) -> Kind:
        free_ms, last_job, last_stage = last
        if last_job != job:
            return "fresh"
        if last_stage == stage:
            return "rest"
        return "fresh" if launch_ms - free_ms > IDLE_MS else "first"


def describe(count: SlotCount, from_ms: int, most: int = 6) -> str:
    """The slots over time, for people: "4 at 0.0 s, 8 at 12.5 s"; at most so many steps."""
    steps: list[tuple[float, int]] = []
    for time, slots in zip(count.times, count.counts, strict=True):
        at_s = max(0, time - from_ms) / 1000.0
        if steps and steps[-1][0] == at_s:
            steps[-1] = (at_s, slots)
        elif not steps or steps[-1][1] != slots:
            steps.append((at_s, slots))
    if steps and steps[-1][1] == 0:  # the end of the application
        steps.pop()
    text = ", ".join(f"{slots} at {at_s:.1f} s" for at_s, slots in steps[:most])
    return text if len(steps) <= most else f"{text}, ... {len(steps) - most} more changes"


def mean_level(levels: Sequence[int]) -> int:
    """The executors a stage had: the mean over its tasks, a whole number from 1."""
    return min(MAX_LEVEL, max(1, round(sum(levels) / len(levels))))
