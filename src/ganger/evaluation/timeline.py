"""Which executor ran which task when, in the one window of a comparison that is shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganger.evaluation.compare import Contender
from ganger.evaluation.episodes import JobLists, Replay

WINDOW = 0

Setting = tuple[int, float | None]
"""Executors, and the offered load or None: as the workload has it."""


def shown_setting(settings: Sequence[Setting]) -> Setting:
    """Of the clusters and loads that are compared, the one in the middle."""
    return settings[len(settings) // 2]


def timeline(
    lists: JobLists, contenders: Sequence[Contender], executors: int, load: float | None
) -> dict[str, Any]:
    """Rows of all tasks in the first window under each scheduler, by column; times are seconds.

    A log that is replayed does not say which executor ran what: it has no rows.
    """
    templates, _ = lists.draw(WINDOW)
    tasks = int(lists.table.templates["tasks"][templates].sum())
    log = lists.log_jobs(WINDOW)
    ids = np.array([job.id for job in log] or list(map(str, range(lists.jobs))), object)
    found: dict[str, list[Any]] = {}
    for contender in contenders:
        if isinstance(contender.scheduler, Replay):
            continue
        state = lists.new_state(tasks)
        lists.outcomes(state, contender.scheduler, WINDOW)
        rows = state.timeline[: state.clock[0]["tasks_logged"]]
        about = {
            "scheduler": np.array(contender.name, object),
            "mode": np.array(contender.mode, object),
            "window": np.int64(WINDOW),
            "executors": np.int64(executors),
            "load": np.float64(np.nan if load is None else load),
            "job_id": ids[rows["job"]],
            "stage": rows["stage"].astype(np.int64),
            "task": rows["task"].astype(np.int64),
            "executor": rows["executor"].astype(np.int64),
            "starting_time": np.array(rows["start_s"]),
            "finish_time": np.array(rows["finish_s"]),
        }
        for name, values in about.items():
            found.setdefault(name, []).append(np.broadcast_to(values, len(rows)))
    return {name: np.concatenate(values) for name, values in found.items()}
