"""Job templates flattened for compiled code: DAGs, task counts and durations of distinct jobs."""

import math
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from ganger.compiled import records
from ganger.structs import ArrayStruct
from ganger.workload.model import (
    Job,
    PerTask,
    Pool,
    Stage,
    Waves,
    task_estimate_s,
    topological_order,
)
from ganger.workload.verdicts import measured_task_s

PER_TASK, POOL, WAVES = 0, 1, 2
ESTIMATE, MEANS = 3, 4  # of a told table only: what is to be expected, see known.py
FRESH, FIRST, REST = 0, 1, 2  # wave kinds, see SIMULATOR rules in docs/simulator.md

TEMPLATE = np.dtype(
    [
        ("first_stage", "i4"),
        ("stages", "i4"),
        ("tasks", "i8"),
        ("work_s", "f8"),
        ("path_s", "f8"),  # longest chain of real mean task durations: only figures use it
        ("weight", "f8"),  # in an objective that weighs jobs
    ]
)
TEMPLATE_STAGE = np.dtype(
    [
        ("estimate_s", "f8"),
        ("tasks", "i4"),
        ("parents", "i4"),
        ("first_child", "i4"),  # children[first_child : first_child + children]
        ("children", "i4"),
        ("durations", "i4"),  # PER_TASK, POOL, WAVES, ESTIMATE or MEANS
        ("first_list", "i4"),  # waves: lists[first_list + kind * levels + level]
        ("levels", "i4"),
        ("first_interval", "i4"),  # intervals[first_interval + min(executors, last_interval)]
        ("last_interval", "i4"),
        ("position", "i4"),  # of the stage in the job as the user wrote it
        ("gang", "i4"),  # 1: all its tasks start together
        ("limit_s", "f8"),  # NaN: none was asked for
        ("cores", "f8"),  # that an executor must have
        ("memory", "f8"),
    ],
    align=True,
)
LIST = np.dtype(
    [
        ("first", "i8"),
        ("count", "i8"),
        ("added_s", "f8"),
        ("mean_s", "f8"),  # with what is added; in a told table only
    ]
)
INTERVAL = np.dtype([("left_share", "f8"), ("left", "i4"), ("right", "i4")])


class Table(ArrayStruct):
    """Distinct jobs, read-only and shared by any number of states.

    That of a log also says which of them arrived when; without a log these two are empty.
    """

    templates: Any
    stages: Any  # a template's stages in topological order
    children: Any  # positions within the template
    lists: Any
    intervals: Any
    values: Any  # seconds
    log_templates: Any  # of each job of the log, by arrival
    log_arrivals_s: Any
    FIELDS: ClassVar = {
        "templates": (TEMPLATE, 1),
        "stages": (TEMPLATE_STAGE, 1),
        "children": (np.int32, 1),
        "lists": (LIST, 1),
        "intervals": (INTERVAL, 1),
        "values": (np.float64, 1),
        "log_templates": (np.int32, 1),
        "log_arrivals_s": (np.float64, 1),
    }


class TableBuilder:
    """Flattens stage tuples; the same tuple, or one equal to it, is stored once for each weight."""

    def __init__(self) -> None:
        self._template_of_id: dict[tuple[int, float], int] = {}
        self._template_of_stages: dict[tuple[tuple[Stage, ...], float], int] = {}
        self._keep_alive: list[tuple[Stage, ...]] = []
        self._templates: list[tuple[int, int, int, float, float, float]] = []
        self._stages: list[tuple[float | int, ...]] = []
        self._children: list[int] = []
        self._lists: list[tuple[int, int, float, float]] = []
        self._grids: dict[tuple[tuple[int, ...], str], tuple[int, int]] = {}
        self._intervals: list[tuple[float, int, int]] = []
        self._values: list[Sequence[float]] = []
        self._value_count = 0

    def add(self, stages: tuple[Stage, ...], weight: float = 1.0) -> int:
        """The index of the template with these stages and this weight."""
        if (known := self._template_of_id.get((id(stages), weight))) is not None:
            return known
        if (known := self._template_of_stages.get((stages, weight))) is None:
            known = self._template_of_stages[stages, weight] = self._flatten(stages, weight)
        self._template_of_id[id(stages), weight] = known
        self._keep_alive.append(stages)
        return known

    def _flatten(self, stages: tuple[Stage, ...], weight: float) -> int:
        order = topological_order(stages)
        place = {stages[position].id: k for k, position in enumerate(order)}
        children: list[list[int]] = [[] for _ in stages]
        for k, position in enumerate(order):
            for parent in stages[position].parents:
                children[place[parent]].append(k)
        first = len(self._stages)
        work_s = 0.0
        path_s: dict[str, float] = {}  # to the end of each stage
        for k, position in enumerate(order):
            stage = stages[position]
            estimate_s = task_estimate_s(stage)
            before_s = max((path_s[p] for p in stage.parents), default=0.0)
            path_s[stage.id] = measured_task_s(stage) + before_s
            work_s += estimate_s * stage.task_count
            kind, first_list, levels, first_interval, last_interval = self._durations(
                stage, estimate_s
            )
            self._stages.append(
                (
                    estimate_s,
                    stage.task_count,
                    len(stage.parents),
                    len(self._children),
                    len(children[k]),
                    kind,
                    first_list,
                    levels,
                    first_interval,
                    last_interval,
                    position,
                    int(stage.gang),
                    math.nan if stage.limit_s is None else stage.limit_s,
                    0.0 if stage.demand is None else stage.demand.cores,
                    0.0 if stage.demand is None else stage.demand.memory,
                )
            )
            self._children.extend(children[k])
        tasks = sum(stage.task_count for stage in stages)
        longest_s = max(path_s.values())
        self._templates.append((first, len(stages), tasks, work_s, longest_s, weight))
        return len(self._templates) - 1

    def _list(self, values: Sequence[float], added_s: float = 0.0) -> None:
        self._lists.append((self._value_count, len(values), added_s, 0.0))
        self._values.append(values)
        self._value_count += len(values)

    def _durations(self, stage: Stage, estimate_s: float) -> tuple[int, int, int, int, int]:
        first_list = len(self._lists)
        match stage.durations:
            case PerTask(values_s=values):
                self._list(values)
                return PER_TASK, first_list, 1, 0, 0
            case Pool(values_s=values):
                self._list(values)
                return POOL, first_list, 1, 0, 0
            case Waves() as waves:
                unknown = (estimate_s,)
                for wave in waves.levels:
                    if wave.fresh_s:
                        self._list(wave.fresh_s)
                    elif wave.first_s:
                        self._list(wave.first_s, waves.warmup_s)
                    else:
                        self._list(unknown)
                for wave in waves.levels:
                    self._list(wave.first_s or wave.fresh_s or unknown)
                for wave in waves.levels:
                    self._list(wave.rest_s or wave.first_s or wave.fresh_s or unknown)
                grid = self._grid(
                    tuple(wave.executors for wave in waves.levels), waves.interpolation
                )
                return WAVES, first_list, len(waves.levels), *grid

    def _grid(self, levels: tuple[int, ...], interpolation: str) -> tuple[int, int]:
        """Which two levels serve a number of executors, and how often the left one does."""
        if (known := self._grids.get((levels, interpolation))) is not None:
            return known
        first = len(self._intervals)
        for n in range(levels[-1] + 1):
            right = next(i for i, level in enumerate(levels) if level >= n)
            left = right if levels[right] == n or right == 0 else right - 1
            left_share = 1.0
            if left < right:
                towards_right = (n - levels[left]) / (levels[right] - levels[left])
                left_share = towards_right if interpolation == "inverted" else 1 - towards_right
            self._intervals.append((left_share, left, right))
        self._grids[levels, interpolation] = (first, levels[-1])
        return first, levels[-1]

    def build(self, log: Sequence[tuple[int, float]] = ()) -> Table:
        """The table of everything added so far.

        Args:
            log: template and arrival in seconds of each job of a log, by arrival.
        """
        values = np.empty(max(self._value_count, 1))
        at = 0
        for chunk in self._values:
            values[at : at + len(chunk)] = chunk
            at += len(chunk)
        return Table(
            templates=to_records(self._templates, TEMPLATE),
            stages=to_records(self._stages, TEMPLATE_STAGE),
            children=np.array(self._children or [0], np.int32),
            lists=to_records(self._lists, LIST),
            intervals=to_records(self._intervals or [(1.0, 0, 0)], INTERVAL),
            values=values,
            log_templates=np.array([template for template, _ in log], np.int32),
            log_arrivals_s=np.array([arrival_s for _, arrival_s in log], np.float64),
        )


def build_log_table(jobs: Sequence[Job], weights: Iterable[float] | None = None) -> Table:
    """The table of a log, jobs by arrival; all weigh 1 unless weights are given."""
    builder = TableBuilder()
    return builder.build(
        [
            (builder.add(job.stages, weight), job.arrival_s)
            for job, weight in zip(jobs, weights or repeat(1.0), strict=weights is not None)
        ]
    )


def to_records(rows: Sequence[tuple[Any, ...]], dtype: Any) -> Any:
    """The rows as an array of records."""
    array = records(len(rows), dtype)
    array[:] = np.array(rows, dtype)
    return array


def empty_table() -> Table:
    """A table without templates."""
    return TableBuilder().build()


def build_table(
    templates: Iterable[tuple[Stage, ...]], weights: Iterable[float] | None = None
) -> Table:
    """The table of these templates, in this order; all weigh 1 unless weights are given.

    Templates that are equal, weights included, are stored once, so a template's index is its
    position only if all are distinct; use `TableBuilder.add` where that matters.
    """
    builder = TableBuilder()
    for stages, weight in zip(templates, weights or repeat(1.0), strict=weights is not None):
        builder.add(stages, weight)
    return builder.build()
