"""A state as far as a scheduler may know it: what a plan is tried out in.

What is not known: the jobs that will arrive, and the luck of tasks, of those that run as well. What
takes their place:

- nothing arrives any more;
- a task takes the mean of its profile at its wave and its job's executors (`Waves`), else what its
  stage was estimated or, for a gang, asked for: a *told* table. A profile is what was measured of
  the same stage in other runs. Pools and values by task may be those of the very job, so their
  spread is not told, only the estimate, which every scheduler sees;
- a running task that has run for some time will run on for what tasks of its profile that took
  longer took on average. Without a profile: for the rest of the estimate, and where that is over,
  for a tenth of it.
"""

import math
from typing import Any, ClassVar

import numpy as np

from ganger.compiled import compiled
from ganger.simulator.engine import push
from ganger.simulator.state import EXECUTOR_ARRIVAL, TASK_DONE, State, new_state
from ganger.simulator.table import ESTIMATE, MEANS, WAVES, Table
from ganger.structs import ArrayStruct

_LEAST_LEFT = 0.1  # of the estimate, for a task that has run longer than that

_NO_EVENT, _TASK, _ARRIVAL = 0, 1, 2


class Told(ArrayStruct):
    """What is left of tasks that have run for some time. Lists as in the table that it belongs to,
    but with values in ascending order."""

    values: Any
    sums: Any  # sums[i]: of the list's values from i on
    FIELDS: ClassVar = {"values": (np.float64, 1), "sums": (np.float64, 1)}


class Moved(ArrayStruct):
    """Where the jobs of a state are in a known one, and what its executors are about to do."""

    job: Any  # [jobs]: of active jobs
    stage: Any  # [jobs]: of their stages, new index - old index
    event: Any  # [executors]: nothing, a task ends, it arrives
    arrival_s: Any  # [executors]
    FIELDS: ClassVar = {
        "job": (np.int64, 1),
        "stage": (np.int64, 1),
        "event": (np.int64, 1),
        "arrival_s": (np.float64, 1),
    }


def told_table(table: Table) -> tuple[Table, Told]:
    """The table with what is to be expected in place of luck."""
    lists = table.lists.copy()
    values = table.values[: int(lists["count"].sum())]
    if not len(lists):
        return table, Told(values=table.values.copy(), sums=table.values.copy())
    # Lists follow each other without gaps.
    of_list = np.repeat(np.arange(len(lists)), lists["count"])
    ascending = values[np.lexsort((values, of_list))]
    total = np.add.reduceat(ascending, lists["first"])
    before = np.cumsum(ascending) - ascending
    start = np.repeat(before[lists["first"]], lists["count"])
    sums = np.repeat(total, lists["count"]) - (before - start)
    lists["mean_s"] = total / lists["count"] + lists["added_s"]
    stages = table.stages.copy()
    stages["durations"] = np.where(stages["durations"] == WAVES, MEANS, ESTIMATE)
    asked = (stages["gang"] == 1) & ~np.isnan(stages["limit_s"])
    stages["estimate_s"] = np.where(asked, stages["limit_s"], stages["estimate_s"])
    return table.replace(stages=stages, lists=lists), Told(values=ascending, sums=sums)


def new_known(state: State) -> tuple[State, Moved]:
    """Room for what is known of a state. One stage and job stand for all that have ended."""
    jobs, executors = len(state.jobs), len(state.executors)
    return new_state(jobs + 1, len(state.stages) + 1, executors), Moved(
        job=np.zeros(jobs, np.int64),
        stage=np.zeros(jobs, np.int64),
        event=np.zeros(executors, np.int64),
        arrival_s=np.zeros(executors),
    )


@compiled
def _left_in(table, told, which, elapsed_s):
    """Share of a list's values that are longer than a task has run, and by how much, summed."""
    chosen = table.lists[which]
    passed_s = elapsed_s - chosen.added_s
    low, high = np.int64(chosen.first), np.int64(chosen.first + chosen.count)
    end = high
    while low < high:
        middle = (low + high) >> 1
        if told.values[middle] > passed_s:
            high = middle
        else:
            low = middle + 1
    if low == end:
        return 0.0, 0.0
    longer = end - low
    return longer / chosen.count, (told.sums[low] - longer * passed_s) / chosen.count


@compiled
def left_s(table, told, template_stage, wave, executors, elapsed_s):
    """Seconds that a task is expected to run on after `elapsed_s`; `table` is a told one."""
    stage = table.stages[template_stage]
    if stage.durations == MEANS:
        interval = table.intervals[stage.first_interval + min(executors, stage.last_interval)]
        which = np.int64(stage.first_list) + wave * stage.levels
        share, sum_s = _left_in(table, told, which + interval.left, elapsed_s)
        right_share, right_sum_s = _left_in(table, told, which + interval.right, elapsed_s)
        share = right_share + interval.left_share * (share - right_share)
        sum_s = right_sum_s + interval.left_share * (sum_s - right_sum_s)
        if share > 0.0:
            return sum_s / share
    return max(stage.estimate_s - elapsed_s, _LEAST_LEFT * stage.estimate_s)


@compiled
def _known_stage(state, moved, s, ended):
    """Where a stage is in the known state; `ended` stands for those of jobs that have ended."""
    if s < 0:
        return np.int64(-1)
    j = state.stages[s].job
    if not math.isnan(state.jobs[j].finish_s):
        return ended
    return s + moved.stage[j]


@compiled
def _copy_source(state, known, moved, source, to, ended):
    given, kept = state.sources[source], known.sources[to]
    kept.pool = given.pool
    kept.first = given.first
    kept.last = given.last
    c = given.first
    while c >= 0:
        known.commitments[c].stage = _known_stage(
            state, moved, np.int64(state.commitments[c].stage), ended
        )
        c = state.commitments[c].next


@compiled
def copy_known(state, table, told, known, moved):
    """Write what is known of a state that waits for a decision; `table` and `told` are told ones.

    The known state goes on under the told table as any other, from the same decision on. Its jobs
    are the active ones in order, and one that has ended, which is where executors and promises go
    whose job has ended meanwhile.
    """
    clock = state.clock[0]
    known.clock[0] = clock
    kept = known.clock[0]
    active = np.int64(clock.active)
    s = np.int64(0)
    for a in range(active):
        j = np.int64(state.active[a])
        moved.job[j] = a
        moved.stage[j] = s - state.jobs[j].first_stage
        known.active[a] = a
        known.jobs[a] = state.jobs[j]
        known.jobs[a].first_stage = s
        known.jobs[a].key = 0
        for k in range(state.jobs[j].first_stage, state.jobs[j].first_stage + state.jobs[j].stages):
            known.stages[s] = state.stages[k]
            known.stages[s].job = a
            known.stages[s].key = 0  # of its tasks' luck
            s += 1
    ended = s
    job, stage = known.jobs[active], known.stages[ended]
    job.finish_s = clock.now
    job.first_stage = ended
    job.stages = 1
    job.finished_stages = 1
    job.exhausted_stages = 1
    job.unsaturated = 0
    job.schedulable = 0
    job.executors = 0
    job.supply = 0
    stage.job = active
    stage.template = 0
    stage.tasks = 0
    stage.launched = 0
    stage.finished = 0
    stage.committed = 0
    stage.moving = 0
    stage.executors = 0
    stage.unfinished_parents = 0
    stage.unsaturated_parents = 0
    stage.saturated = 1
    stage.gang = 0
    stage.refuses = 0
    kept.jobs = active + 1
    kept.arrived = active + 1
    kept.finished = 1
    kept.stages = ended + 1
    kept.source_job = moved.job[clock.source_job] if clock.source_job >= 0 else -1

    for c in range(clock.executors + 1):
        known.commitments[c] = state.commitments[c]
    for a in range(active):
        given = state.jobs[state.active[a]]
        for k in range(given.stages):
            at = np.int64(given.first_stage) + k
            to = np.int64(known.jobs[a].first_stage) + k
            _copy_source(state, known, moved, at, to, ended)
        pool = np.int64(clock.stages) + state.active[a]
        _copy_source(state, known, moved, pool, np.int64(kept.stages) + a, ended)
    for source in (ended, np.int64(kept.stages) + active):
        known.sources[source].pool = -1
        known.sources[source].first = -1
        known.sources[source].last = -1
    common = np.int64(kept.stages) + kept.jobs
    _copy_source(state, known, moved, np.int64(clock.stages) + clock.jobs, common, ended)
    for h in range(clock.in_hand):
        known.hand[h] = state.hand[h]
    if clock.next_kind >= 0:  # a pool; its next class will be offered when the round is over
        j = np.int64(clock.next_source) - clock.stages
        kept.next_source = kept.stages + moved.job[j] if j < clock.jobs else common

    for e in range(clock.executors):
        moved.event[e] = _NO_EVENT
    for k in range(clock.heap_size):
        event = state.heap[k]
        e = event.what >> 1
        moved.event[e] = _TASK
        if event.what & 1 == EXECUTOR_ARRIVAL:
            moved.event[e] = _ARRIVAL
            moved.arrival_s[e] = event.time
    kept.heap_size = 0
    for e in range(clock.executors):
        given = state.executors[e]
        known.executors[e] = given
        executor = known.executors[e]
        executor.job = moved.job[given.job] if given.job >= 0 else -1
        executor.stage = _known_stage(state, moved, np.int64(given.stage), ended)
        executor.target = _known_stage(state, moved, np.int64(given.target), ended)
        if given.target >= 0 and executor.target == ended:
            job.supply += 1
            stage.moving += 1
        if given.pool >= 0:
            j = np.int64(given.pool) - clock.stages
            executor.pool = kept.stages + moved.job[j] if j < clock.jobs else common
        # In the order of the executors: that of the true ends is not known.
        if moved.event[e] == _ARRIVAL:
            push(known, moved.arrival_s[e], 2 * e + EXECUTOR_ARRIVAL)
        elif moved.event[e] == _TASK:
            runs = known.stages[executor.stage]
            elapsed_s = clock.now - given.started_s
            executors = np.int64(known.jobs[runs.job].executors)
            wait_s = left_s(table, told, runs.template, given.wave, executors, elapsed_s)
            push(known, clock.now + wait_s, 2 * e + TASK_DONE)
    for c in range(clock.executors + 1):
        if known.commitments[c].stage == ended and known.commitments[c].count > 0:
            stage.committed += known.commitments[c].count


@compiled
def copy_state(known, copy):
    """Copy a known state, as far as it is used."""
    clock = known.clock[0]
    copy.clock[0] = clock
    for k in range(clock.heap_size):
        copy.heap[k] = known.heap[k]
    for j in range(clock.jobs):
        copy.jobs[j] = known.jobs[j]
    for a in range(clock.active):
        copy.active[a] = known.active[a]
    for s in range(clock.stages):
        copy.stages[s] = known.stages[s]
    for e in range(clock.executors):
        copy.executors[e] = known.executors[e]
    for k in range(clock.stages + clock.jobs + 1):
        copy.sources[k] = known.sources[k]
    for c in range(clock.executors + 1):
        copy.commitments[c] = known.commitments[c]
    for h in range(clock.in_hand):
        copy.hand[h] = known.hand[h]
