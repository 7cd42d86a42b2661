"""Who ran what when, one chart per scheduler, drawn by gantt.js.

Tasks of one stage that run back to back on an executor are one bar. A bar is six numbers and a task
one, its duration, in columns of 32 bits that are deflated: a million tasks are some megabytes.
"""

import base64
import zlib
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.report.drawing import COLOURS, Charts
from ganger.report.page import script_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TASKS = 500_000
"""Of all schedulers; of more, the page holds no single tasks but only bars."""

_LIGHT = COLOURS["quiet"][0]
_HUES = 24


class Tasks(NamedTuple):
    """What ran in one window under one scheduler; arrays are [tasks]."""

    label: str
    about: str
    """Beside the label."""
    executor: NDArray[np.int64]
    job: NDArray[np.int64]
    """Rank by arrival."""
    stage: NDArray[np.int64]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]


class Bars(NamedTuple):
    """Tasks of one scheduler, sorted by executor and start, and where bars begin among them."""

    tasks: Tasks
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def bars(tasks: Tasks) -> Bars:
    """Join what runs back to back."""
    order = np.lexsort((tasks.start_s, tasks.executor))
    tasks = tasks._replace(**{name: getattr(tasks, name)[order] for name in Tasks._fields[2:]})
    if not len(order):
        return Bars(tasks, order, order)
    begins = np.ones(len(order), bool)
    begins[1:] = tasks.start_s[1:] > tasks.finish_s[:-1] + 1e-9
    for column in (tasks.executor, tasks.job, tasks.stage):
        begins[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(begins)
    return Bars(tasks, first, np.append(first[1:], len(order)) - 1)


def gantt(every: list[Tasks], jobs: list[str], executors: int) -> str:
    """The charts and their data as HTML.

    Args:
        jobs: their names, by rank.
        executors: of the cluster.
    """
    horizon_s = max(float(tasks.finish_s.max(initial=1.0)) for tasks in every)
    unit_s = 1e-3
    while horizon_s / unit_s >= 2**32:
        unit_s *= 10
    single = sum(len(tasks.start_s) for tasks in every) <= MOST_TASKS
    data = {
        "unit_s": unit_s,
        "horizon_s": horizon_s,
        "executors": executors,
        "jobs": jobs,
        "charts": [_packed(bars(tasks), unit_s, single) for tasks in every],
    }
    figures = "\n".join(
        f"<figure><figcaption><b>{escape(tasks.label)}</b> <span>{escape(tasks.about)}</span>"
        "</figcaption>"
        f'<canvas id="gantt-{k}" tabindex="0" role="img" aria-describedby="gantt-help" '
        f'aria-label="Gantt chart of {executors} executors under {escape(tasks.label)}: '
        f'{len(tasks.start_s):,} tasks, {escape(tasks.about)}"></canvas></figure>'
        for k, tasks in enumerate(every)
    )
    named = (("in", "+", "Zoom in"), ("out", "−", "Zoom out"), ("left", "←", "Earlier"),
             ("right", "→", "Later"), ("all", "All", "Show the whole window"))  # fmt: skip
    buttons = "".join(
        f'<button type="button" data-do="{do}" aria-label="{label}">{text}</button>'
        for do, text, label in named
    )
    joined = "" if single else " Single tasks are left out of this page, as there are so many."
    return (
        f'<div class="buttons">{buttons}<span id="gantt-range"></span></div>\n'
        f'<p class="source screen" id="gantt-help">All charts show the same time; each colour is a '
        "job. The wheel zooms a chart that was clicked, or any with Ctrl; drag to move. With the "
        "keyboard: arrows go from bar to bar, Shift and arrows move, + and − zoom, 0 shows all, "
        f"Esc lets go.{joined}</p>\n"
        f'<div class="gantts" id="gantts">{figures}</div>\n'
        '<div id="gantt-tip" role="status" aria-live="polite"></div>\n'
        f"{script_json('gantt-data', data)}"
    )


def save_gantt(charts: Charts, every: list[Tasks], executors: int) -> None:
    """The same as one picture, where pictures are wanted."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import hsv_to_rgb

    hues = hsv_to_rgb([(k * 7 % _HUES / _HUES, 0.5, 0.75) for k in range(_HUES)])

    def draw(figure: "Figure") -> None:
        grid = figure.subplots(len(every), 1, sharex=True, squeeze=False)[:, 0]
        for axes, tasks in zip(grid, every, strict=True):
            found = bars(tasks)
            own = found.tasks
            low, row = own.start_s[found.first], own.executor[found.first]
            high = own.finish_s[found.last]
            x = np.stack([low, high, high, low], axis=1)
            y = np.stack([row, row, row + 0.9, row + 0.9], axis=1)
            fill = hues[own.job[found.first] % _HUES]
            axes.add_collection(PolyCollection([*np.stack([x, y], axis=2)], facecolors=fill))
            axes.set_ylim(executors, 0)
            axes.set_title(f"{tasks.label}, {tasks.about}", loc="left", color=_LIGHT)
            axes.grid(False)
        grid[-1].autoscale(axis="x")
        grid[-1].set_xlabel("seconds")

    charts.save_png("gantt", draw, (10.0, 0.4 + 1.9 * len(every)))


def _packed(found: Bars, unit_s: float, single: bool) -> dict[str, Any]:
    tasks, first, last = found

    def units(seconds: NDArray[np.float64]) -> NDArray[np.uint32]:
        return np.round(seconds / unit_s).astype(np.uint32)

    start, finish = units(tasks.start_s), units(tasks.finish_s)
    columns = [
        *(start[first], finish[last] - start[first]),
        *(column[first].astype(np.uint32) for column in (tasks.executor, tasks.job, tasks.stage)),
        (last - first + 1).astype(np.uint32),
    ]
    if single:
        columns.append(finish - start)
    raw = np.concatenate(columns).astype("<u4").tobytes()
    return {
        "label": tasks.label,
        "bars": len(first),
        "tasks": len(start) if single else 0,
        "data": base64.b64encode(zlib.compress(raw, 9)).decode(),
    }
