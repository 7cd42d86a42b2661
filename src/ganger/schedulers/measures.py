"""What heuristics measure of a job: its next stage, the work left, the paths through its DAG.

All estimates: a stage's task takes `estimate_s`, and a task that runs is half done.
"""

import numpy as np

from ganger.compiled import compiled
from ganger.simulator.engine import is_schedulable


@compiled
def first_schedulable(state, j):
    """The job's first stage that may be chosen, or -1; one that can start now comes first."""
    job = state.jobs[j]
    best = np.int64(-1)
    for s in range(job.first_stage, job.first_stage + job.stages):
        if is_schedulable(state, s):
            if state.stages[s].unfinished_parents == 0:
                return np.int64(s)
            if best < 0:
                best = np.int64(s)
    return best


@compiled
def remaining_work_s(state, j):
    """Executor-seconds that the job has left."""
    job = state.jobs[j]
    work_s = 0.0
    for s in range(job.first_stage, job.first_stage + job.stages):
        stage = state.stages[s]
        running = stage.launched - stage.finished
        work_s += stage.estimate_s * ((stage.tasks - stage.launched) + 0.5 * running)
    return work_s


@compiled
def total_work_s(state, j):
    """Executor-seconds of the whole job, done or not."""
    job = state.jobs[j]
    work_s = 0.0
    for s in range(job.first_stage, job.first_stage + job.stages):
        work_s += state.stages[s].estimate_s * state.stages[s].tasks
    return work_s


@compiled
def critical_path_s(state, table, j, whole, path_s):
    """The longest chain of task durations from here to the job's end.

    whole: 1 counts finished stages too, 0 leaves them out. path_s[k] becomes the chain that starts
    with the job's k-th stage.
    """
    job = state.jobs[j]
    longest_s = 0.0
    for k in range(job.stages - 1, -1, -1):  # children come after their parents
        stage = state.stages[job.first_stage + k]
        template = table.stages[stage.template]
        after_s = 0.0
        for c in range(template.first_child, template.first_child + template.children):
            after_s = max(after_s, path_s[table.children[c]])
        if whole == 1 or stage.finished < stage.tasks:
            after_s += stage.estimate_s
        path_s[k] = after_s
        longest_s = max(longest_s, after_s)
    return longest_s
