"""When executors will be free, by what running jobs asked for; and reservations in that future.

The profile is a step function: `free[i]` executors from `time_s[i]` until the next time, the last
ones for ever. It starts now.
"""

import math

import numpy as np

from ganger.compiled import compiled

_LEAST_S = 1e-3  # what asks for less is planned as if it asked for this: a plan takes time
_OVERDUE_S = 1.0  # a gang that runs longer than was asked for may end any moment: in a second


@compiled
def requested_s(state, table, s):
    """The run time that a scheduler believes: what was asked for, else the estimate."""
    stage = state.stages[s]
    limit_s = table.stages[stage.template].limit_s
    return stage.estimate_s if math.isnan(limit_s) else limit_s


@compiled
def planned_s(state, table, s):
    """How long a gang occupies its executors in a plan."""
    return max(requested_s(state, table, s), _LEAST_S)


@compiled
def alike(state):
    """Executors of the class on offer."""
    clock = state.clock[0]
    if clock.kinds == 0:
        return np.int64(clock.executors)
    count = np.int64(0)
    for e in range(clock.executors):
        if state.executors[e].kind == clock.offered_kind:
            count += 1
    return count


@compiled
def write_releases(state, table, end_s, count):
    """When busy executors are expected back: entry i is count[i] executors at end_s[i].

    A gang ends when it has run as long as was asked for. All other executors of a job come back
    together, when they would have done what is left of its stages; a guess. Those that are nowhere
    else, as they were promised a moment ago, come back last. Of executor classes, only the one on
    offer counts, and all of it that runs no gang comes back last. Returns the number of entries.
    """
    clock = state.clock[0]
    entries = 0
    missing = alike(state) - clock.on_offer
    latest_s = clock.now + _OVERDUE_S
    for a in range(clock.active):
        job = state.jobs[state.active[a]]
        others = np.int64(job.executors)
        work_s = 0.0
        for s in range(job.first_stage, job.first_stage + job.stages):
            stage = state.stages[s]
            if stage.gang == 0:
                others += stage.moving
                running = stage.launched - stage.finished
                work_s += stage.estimate_s * ((stage.tasks - stage.launched) + 0.5 * running)
            elif stage.finished < stage.launched:
                if state.executors[stage.lead].kind != clock.offered_kind:
                    continue
                end = state.executors[stage.lead].started_s + planned_s(state, table, s)
                end_s[entries] = end if end > clock.now else clock.now + _OVERDUE_S
                count[entries] = stage.tasks
                latest_s = max(latest_s, end_s[entries])
                missing -= stage.tasks
                others -= stage.tasks
                entries += 1
        if others > 0 and clock.kinds == 0:
            end_s[entries] = clock.now + max(work_s / others, _OVERDUE_S)
            count[entries] = others
            latest_s = max(latest_s, end_s[entries])
            missing -= others
            entries += 1
    if missing > 0:
        end_s[entries] = latest_s
        count[entries] = missing
        entries += 1
    return entries


@compiled
def write_profile(state, entries, end_s, count, time_s, free):
    """The profile of these releases; returns its number of steps."""
    clock = state.clock[0]
    time_s[0] = clock.now
    free[0] = clock.on_offer
    steps = 1
    by_time = np.argsort(end_s[:entries], kind="mergesort")  # stable: the same uncompiled
    for i in range(entries):
        entry = by_time[i]
        if end_s[entry] > time_s[steps - 1]:
            time_s[steps] = end_s[entry]
            free[steps] = free[steps - 1]
            steps += 1
        free[steps - 1] += count[entry]
    return steps


@compiled
def earliest(steps, time_s, free, executors, duration_s):
    """The first step from which so many executors are free for so long."""
    i = 0
    while True:
        while i < steps - 1 and free[i] < executors:
            i += 1
        end_s = time_s[i] + duration_s
        k = i
        while k < steps and time_s[k] < end_s and free[k] >= executors:
            k += 1
        if k == steps or time_s[k] >= end_s:
            return i
        i = k


@compiled
def reserve(steps, time_s, free, first, executors, duration_s):
    """Take executors out of the profile from a step on; returns its number of steps."""
    end_s = time_s[first] + duration_s
    last = first
    while last < steps and time_s[last] < end_s:
        last += 1
    if last == steps or time_s[last] > end_s:
        for k in range(steps, last, -1):
            time_s[k] = time_s[k - 1]
            free[k] = free[k - 1]
        time_s[last] = end_s
        free[last] = free[last - 1]
        steps += 1
    for k in range(first, last):
        free[k] -= executors
    return steps
