"""How long a task takes: decided by the seed, the job, the stage, the task and the wave.

Not by the order of events: the random word of a task is keyed by (seed, the job's rank by arrival,
stage, task), so two schedulers on the same jobs meet comparable luck. The known simulators draw in
order of events, so agreement with them is statistical.
"""

import numpy as np

from ganger.compiled import compiled
from ganger.simulator.table import FIRST, FRESH, PER_TASK, REST, WAVES
from ganger.streams import derive

_LOW = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_TO_UNIT = 2.0**-32


@compiled
def task_duration_s(table, template_stage, stage_key, task, executors, last_stage, this_stage):
    """Seconds that a task takes when it starts now.

    executors: bound to its job, this one included; last_stage: the stage of the executor's previous
    task, or -1 if it just idled, moved or came from another job.
    """
    stage = table.stages[template_stage]
    if stage.durations == PER_TASK:
        return table.values[table.lists[stage.first_list].first + task]
    word = derive(stage_key, task)
    which = np.int64(stage.first_list)
    if stage.durations == WAVES:
        interval = table.intervals[stage.first_interval + min(executors, stage.last_interval)]
        level = np.int64(interval.left)
        if np.float64(word & _LOW) * _TO_UNIT >= interval.left_share:
            level = np.int64(interval.right)
        if last_stage < 0:
            wave = FRESH
        elif last_stage == this_stage:
            wave = REST
        else:
            wave = FIRST
        which += wave * stage.levels + level
    chosen = table.lists[which]
    at = np.int64(((word >> _S32) * np.uint64(chosen.count)) >> _S32)
    return table.values[chosen.first + at] + chosen.added_s
