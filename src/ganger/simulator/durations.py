"""How long a task takes: decided by the seed, the job, the stage, the task and the wave.

Not by the order of events: the random word of a task is keyed by (seed, the job's rank by arrival,
stage, task), so two schedulers on the same jobs meet comparable luck. The known simulators draw in
order of events, so agreement with them is statistical.

A *told* table (`simulator/known.py`) knows no luck: a task takes as long as is to be expected.
"""

import numpy as np

from ganger.compiled import compiled
from ganger.simulator.table import ESTIMATE, FIRST, FRESH, MEANS, PER_TASK, REST, WAVES
from ganger.streams import derive

_LOW = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_TO_UNIT = 2.0**-32


@compiled
def wave_of(last_stage, this_stage):
    """Which wave a task is of; last_stage: of the executor's previous task, or -1 if it just idled,
    moved or came from another job."""
    if last_stage < 0:
        return FRESH
    return REST if last_stage == this_stage else FIRST


@compiled
def task_duration_s(table, template_stage, stage_key, task, executors, wave):
    """Seconds that a task takes when it starts now; executors: bound to its job, this included."""
    stage = table.stages[template_stage]
    if stage.durations == PER_TASK:
        return table.values[table.lists[stage.first_list].first + task]
    if stage.durations == ESTIMATE:
        return stage.estimate_s
    which = np.int64(stage.first_list)
    if stage.durations == MEANS:
        interval = table.intervals[stage.first_interval + min(executors, stage.last_interval)]
        which += wave * stage.levels
        left_s = table.lists[which + interval.left].mean_s
        right_s = table.lists[which + interval.right].mean_s
        return right_s + interval.left_share * (left_s - right_s)
    word = derive(stage_key, task)
    if stage.durations == WAVES:
        interval = table.intervals[stage.first_interval + min(executors, stage.last_interval)]
        level = np.int64(interval.left)
        if np.float64(word & _LOW) * _TO_UNIT >= interval.left_share:
            level = np.int64(interval.right)
        which += wave * stage.levels + level
    chosen = table.lists[which]
    at = np.int64(((word >> _S32) * np.uint64(chosen.count)) >> _S32)
    return table.values[chosen.first + at] + chosen.added_s
