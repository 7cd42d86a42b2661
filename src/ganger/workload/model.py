"""What arrives at a cluster: jobs, their stages, and how long a stage's tasks take.

All values are frozen and all times are seconds. A `Workload` is checked when it is built: whatever
holds one may rely on acyclic stages, known parents, unique ids and finite durations. Jobs drawn
from a template share one `stages` tuple, which is checked once.

A `Stage` or `Job` by itself is a plain record: nothing is checked before it enters a `Workload`.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from ganger.errors import WorkloadError

MAX_TIME_S = 1e15
"""Longest duration and latest arrival: beyond it, a float64 clock no longer tells seconds apart."""

MAX_TASKS = 2**31 - 1

MAX_LEVEL = 100_000
"""Most executors of a wave profile's level: the simulator keeps a line for every number below."""

# gc=False below: frozen records of plain values cannot form cycles, and a workload may hold
# millions of them, which the garbage collector would walk again and again.


class PerTask(
    Struct,
    frozen=True,
    gc=False,
    tag_field="kind",
    tag="per_task",
    forbid_unknown_fields=True,
):
    """One measured duration per task: task i takes values_s[i]."""

    values_s: tuple[float, ...]


class Pool(
    Struct,
    frozen=True,
    gc=False,
    tag_field="kind",
    tag="pool",
    forbid_unknown_fields=True,
):
    """Durations to draw from, uniformly and with replacement."""

    values_s: tuple[float, ...]


class Wave(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Durations measured while a job had `executors` executors."""

    executors: int
    fresh_s: tuple[float, ...] = ()
    """Tasks of an executor that was idle, has just moved, or worked for another job."""

    first_s: tuple[float, ...] = ()
    """An executor's first task of the stage, when it comes from another stage of the job."""

    rest_s: tuple[float, ...] = ()
    """An executor's later tasks of the stage."""


class Waves(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    tag_field="kind",
    tag="waves",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Durations that depend on the job's executors and on what the executor did before."""

    levels: tuple[Wave, ...]
    """Ascending in `executors`; below the first and above the last, that level is used."""

    warmup_s: float = 0.0
    """Added to a first_s value where a fresh duration is needed and fresh_s is empty."""

    interpolation: Literal["linear", "inverted"] = "linear"
    """Between two levels, draw the nearer one more often; "inverted" draws the farther one more
    often, as the TPC-H simulators of the field do."""


Durations = PerTask | Pool | Waves


class Demand(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What an executor must have to run a task of a stage."""

    cores: float = 0.0
    memory: float = 0.0
    """In the unit of the cluster's executor classes: gibibytes in what readers give."""


class Recorded(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What a log says became of a job, in seconds on the clock of `arrival_s`."""

    start_s: float | None = None
    finish_s: float | None = None
    status: str | None = None
    """As the log's format spells it."""


class Stage(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One node of a job's DAG: identical tasks that may run in parallel."""

    id: str
    parents: tuple[str, ...] = ()
    """Stages that must finish before this one starts."""

    task_count: int
    durations: Durations
    estimated_task_s: float | None = None
    """What a scheduler is told about one task's duration; None: the mean of all values."""

    gang: bool = False
    """All tasks start together, each on an executor of its own, and take the same time."""

    limit_s: float | None = None
    """The run time that was asked for: an upper limit, known to a scheduler."""

    demand: Demand | None = None
    """None: any executor will do."""


class Job(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A DAG of stages that arrives at one moment. Stages may be listed in any order."""

    id: str
    arrival_s: float
    stages: tuple[Stage, ...]
    user: str | None = None
    """Whose job it is, or of which class: what weights are given to."""

    recorded: Recorded | None = None
    """Where a log says when the job ran; no scheduler sees it."""


class Workload(Struct, frozen=True):
    """Jobs sorted by arrival; jobs that arrive together keep the order they were given in.

    Raises:
        WorkloadError: if a job is invalid; the message names the job and the field.
    """

    jobs: tuple[Job, ...]

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        force_setattr(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.arrival_s)))


def task_estimate_s(stage: Stage) -> float:
    """What a scheduler is told about one task of the stage: the estimate, or the mean value."""
    if stage.estimated_task_s is not None:
        return stage.estimated_task_s
    values = [value for part in _value_lists(stage.durations) for value in part]
    return math.fsum(values) / len(values)  # fsum: the same on every Python version


def work_s(stages: Iterable[Stage]) -> float:
    """Estimated executor-seconds of a job's stages: task count x estimate, summed."""
    return math.fsum(stage.task_count * task_estimate_s(stage) for stage in stages)


def topological_order(stages: Sequence[Stage]) -> tuple[int, ...]:
    """Indices of `stages`, parents first; 0, 1, 2, ... where they are listed in such an order.

    Args:
        stages: stages with unique ids and known parents.

    Raises:
        WorkloadError: if stages wait for each other; the message names them.
    """
    index = {stage.id: i for i, stage in enumerate(stages)}
    children: list[list[int]] = [[] for _ in stages]
    waiting = [len(stage.parents) for stage in stages]
    for i, stage in enumerate(stages):
        for parent in stage.parents:
            children[index[parent]].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]  # ascending: a valid heap
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for child in children[i]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    if len(order) < len(stages):
        blocked = {stage.id: stage for i, stage in enumerate(stages) if waiting[i] > 0}
        raise WorkloadError(f"stages wait for each other: {_describe_cycle(blocked)}")
    return tuple(order)


def _describe_cycle(blocked: dict[str, Stage]) -> str:
    """Follow blocked parents, of which every blocked stage has one, until a stage repeats."""
    visited: dict[str, int] = {}
    current = next(iter(blocked))
    while current not in visited:
        visited[current] = len(visited)
        current = next(parent for parent in blocked[current].parents if parent in blocked)
    cycle = [*list(visited)[visited[current] :], current]
    names = [repr(name) for name in cycle]
    if len(names) > 8:
        names[4:-2] = [f"... {len(names) - 6} more ..."]
    return " needs ".join(names)


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse jobs that are invalid or share an id.

    Raises:
        WorkloadError: naming the job and the field.
    """
    ids = set()
    # All the tuples are alive in `jobs`, so within this loop an identity is as good as a value.
    checked = set()
    for job in jobs:
        where = f"job {job.id!r}"
        if job.id in ids:
            raise WorkloadError(f"{where}: id is used by another job; expected unique ids")
        ids.add(job.id)
        check_arrival(job.arrival_s, where)
        check_recorded(job.recorded, where)
        if id(job.stages) not in checked:
            check_stages(job.stages, where)
            checked.add(id(job.stages))


def check_arrival(arrival_s: float, where: str) -> None:
    """Refuse an arrival that is no point in time; `where` opens the message."""
    if not 0.0 <= arrival_s <= MAX_TIME_S:
        raise WorkloadError(f"{where}: arrival_s is {arrival_s}; expected {_TIME}")


def check_recorded(recorded: Recorded | None, where: str) -> None:
    """Refuse a recorded start or finish that is no point in time, or in the wrong order."""
    if recorded is None:
        return
    start_s, finish_s = recorded.start_s, recorded.finish_s
    for field, value in (("start_s", start_s), ("finish_s", finish_s)):
        if value is not None and not 0.0 <= value <= MAX_TIME_S:
            raise WorkloadError(f"{where}: recorded.{field} is {value}; expected {_TIME}")
    if start_s is not None and finish_s is not None and finish_s < start_s:
        raise WorkloadError(
            f"{where}: recorded.finish_s is {finish_s}, before recorded.start_s, {start_s}"
        )


def check_stages(stages: Sequence[Stage], where: str) -> None:
    """Refuse stages that cannot be run; `where` (as "job 'x'") opens the message."""
    if not stages:
        raise WorkloadError(f"{where}: stages is empty; a job needs at least one stage")
    seen: set[str] = set()
    parents_first = True
    for stage in stages:
        if stage.id in seen:
            raise WorkloadError(
                f"{where}: stages: id {stage.id!r} is used twice; expected unique ids"
            )
        parents = stage.parents
        parents_first = parents_first and seen.issuperset(parents)
        seen.add(stage.id)
        if len(parents) > 1 and len(set(parents)) < len(parents):
            raise WorkloadError(
                f"{where}: stage {stage.id!r}: parents names a stage twice; expected each once"
            )
        problem = _stage_problem(stage)
        if problem:
            raise WorkloadError(f"{where}: stage {stage.id!r}: {problem}")
    if parents_first:
        return
    for stage in stages:
        for parent in stage.parents:
            if parent not in seen:
                raise WorkloadError(
                    f"{where}: stage {stage.id!r}: parents: {parent!r} is no stage of this job"
                )
    try:
        topological_order(stages)
    except WorkloadError as error:
        raise WorkloadError(f"{where}: parents: {error}") from None


_VALUE_KINDS = (PerTask, Pool)
_TIME = f"a number of seconds from 0 to {MAX_TIME_S:g}"


def _stage_problem(stage: Stage) -> str | None:
    """What is wrong with one stage by itself, field first; None if nothing is."""
    if not 1 <= stage.task_count <= MAX_TASKS:
        return f"task_count is {stage.task_count}; expected 1 to {MAX_TASKS}"
    estimate = stage.estimated_task_s
    if estimate is not None and not 0.0 <= estimate <= MAX_TIME_S:
        return f"estimated_task_s is {estimate}; expected {_TIME}"
    if stage.limit_s is not None and not 0.0 <= stage.limit_s <= MAX_TIME_S:
        return f"limit_s is {stage.limit_s}; expected {_TIME}"
    if stage.demand is not None:
        for field in ("cores", "memory"):
            asked = getattr(stage.demand, field)
            if not 0.0 <= asked < math.inf:
                return f"demand.{field} is {asked}; expected a number, 0 or more"
    durations: Any = stage.durations  # built by hand, it may be anything
    if stage.gang and not isinstance(durations, Pool):
        name = type(durations).__name__
        return (
            f"durations is a {name}; expected a Pool: a gang's tasks share one value drawn from it"
        )
    if isinstance(durations, Waves):
        return _waves_problem(durations)
    if not isinstance(durations, _VALUE_KINDS):
        return f"durations is a {type(durations).__name__}; expected PerTask, Pool or Waves"
    values = durations.values_s
    if isinstance(durations, PerTask) and len(values) != stage.task_count:
        return (
            f"durations.values_s has {len(values)} values for {stage.task_count} tasks; "
            "expected one per task"
        )
    if not values:
        return "durations.values_s is empty; a pool needs at least one value"
    return _value_problem(values, "durations.values_s")


def _waves_problem(waves: Waves) -> str | None:
    if waves.interpolation not in ("linear", "inverted"):
        return (
            f'durations.interpolation is {waves.interpolation!r}; expected "linear" or "inverted"'
        )
    if not 0.0 <= waves.warmup_s <= MAX_TIME_S:
        return f"durations.warmup_s is {waves.warmup_s}; expected {_TIME}"
    if not any(map(len, _value_lists(waves))):
        return "durations holds no values at any level; expected at least one"
    below = 0
    for i, level in enumerate(waves.levels):
        at = f"durations.levels[{i}]"
        if not below < level.executors <= MAX_LEVEL:
            levels = f"expected levels to ascend, each 1 to {MAX_LEVEL}"
            return f"{at}.executors is {level.executors}; {levels}"
        below = level.executors
        for field in ("fresh_s", "first_s", "rest_s"):
            problem = _value_problem(getattr(level, field), f"{at}.{field}")
            if problem:
                return problem
    return None


def _value_problem(values: tuple[float, ...], field: str) -> str | None:
    # A NaN hides from min and max, but not from the sum.
    if not values or (min(values) >= 0.0 and max(values) <= MAX_TIME_S and sum(values) >= 0.0):
        return None
    i = next(i for i, value in enumerate(values) if not 0.0 <= value <= MAX_TIME_S)
    return f"{field}[{i}] is {values[i]}; expected {_TIME}"


def _value_lists(durations: Durations) -> list[tuple[float, ...]]:
    if isinstance(durations, Waves):
        return [
            part
            for level in durations.levels
            for part in (level.fresh_s, level.first_s, level.rest_s)
        ]
    return [durations.values_s]
