"""Batch scheduling: a queue in some order, and who may overtake in it.

The queue holds the gangs that wait and the other stages that may be chosen. Its first one starts as
soon as it can. When that is not now, then without backfilling nobody else starts; with it

easy          another one may if it does not delay the first: it fits now, and either ends, by what
              it asked for, before the first can start, or uses executors that the first will not
              need then (Lifka 1995, "The ANL/IBM SP scheduling system");
conservative  another one may if it delays none of those before it: each is planned, in order, at
              the first moment at which it fits beside those planned before (Mu'alem & Feitelson
              2001, doi:10.1109/71.932708). Plans are made anew at each decision.

Run times are those asked for; real ones are not looked at. A gang that has run longer may end any
moment, and is planned to end in a second. A stage that is no gang stays as long as
it likes, so it may overtake only on executors that nobody before it needs, ever.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import compiled, records
from ganger.schedulers.order import score
from ganger.schedulers.profile import (
    alike,
    earliest,
    planned_s,
    requested_s,
    reserve,
    write_profile,
    write_releases,
)
from ganger.simulator.engine import advance, decide, decline, is_schedulable, serves
from ganger.simulator.state import State
from ganger.structs import ArrayStruct

BACKFILLS = {"none": 0, "easy": 1, "conservative": 2}
NO_BACKFILL, EASY, CONSERVATIVE = BACKFILLS.values()

BATCH_RULE = np.dtype([("order", "i4"), ("backfill", "i4")])

_NOBODY = (np.int64(-1), np.int64(0))


class Queue(ArrayStruct):
    """A rule and the room to apply it: one for each thread."""

    rule: Any  # [1]
    stage: Any  # [stages]: who waits
    score: Any  # [stages]
    end_s: Any  # [stages + jobs + 1]: when busy executors come back
    count: Any  # [stages + jobs + 1]: how many of them
    time_s: Any  # [profile's steps]
    free: Any  # [profile's steps]
    FIELDS: ClassVar = {
        "rule": (BATCH_RULE, 1),
        "stage": (np.int64, 1),
        "score": (np.float64, 1),
        "end_s": (np.float64, 1),
        "count": (np.int64, 1),
        "time_s": (np.float64, 1),
        "free": (np.int64, 1),
    }


def batch_rule(order: int, backfill: int) -> NDArray[Any]:
    """One BATCH_RULE record."""
    made: NDArray[Any] = records(1, BATCH_RULE)
    made["order"], made["backfill"] = order, backfill
    return made


def new_queue(rule: NDArray[Any], state: State) -> Queue:
    """Room to apply the rule to a state."""
    stages, releases = len(state.stages), len(state.stages) + len(state.jobs) + 1
    steps = releases + 1 + stages  # a reservation adds one
    return Queue(
        rule=rule,
        stage=np.zeros(stages, np.int64),
        score=np.zeros(stages),
        end_s=np.zeros(releases),
        count=np.zeros(releases, np.int64),
        time_s=np.zeros(steps),
        free=np.zeros(steps, np.int64),
    )


@compiled
def _queue_up(state, table, queue):
    """Fill in who waits, in order of jobs and stages; returns how many there are."""
    clock, order = state.clock[0], np.int64(queue.rule[0].order)
    waiting = 0
    most = alike(state)
    for a in range(clock.active):
        j = np.int64(state.active[a])
        job = state.jobs[j]
        if job.schedulable == 0:
            continue
        for s in range(job.first_stage, job.first_stage + job.stages):
            stage = state.stages[s]
            if stage.gang == 1:
                waits = stage.saturated == 0 and stage.unfinished_parents == 0
                # A class that is too small for it, or too few, is not where it waits.
                waits = waits and serves(state, clock.offered_kind, s) and stage.tasks <= most
            else:
                waits = is_schedulable(state, s)
            if waits:
                queue.stage[waiting] = s
                queue.score[waiting] = score(
                    order,
                    requested_s(state, table, s),
                    np.float64(stage.tasks),
                    np.float64(job.arrival_s),
                    clock.now - job.arrival_s,
                )
                waiting += 1
    return waiting


@compiled
def _first(queue, waiting):
    best = 0
    for k in range(1, waiting):
        if queue.score[k] < queue.score[best]:
            best = k
    return best


@compiled
def _give(state, s, executors):
    """The decision that gives a stage so many executors of nobody's."""
    return np.int64(s), np.int64(state.jobs[state.stages[s].job].supply) + executors


@compiled
def _overtake_first(state, table, queue, waiting, first):
    """EASY: the first in order, after the first of all, that does not delay that one."""
    clock = state.clock[0]
    entries = write_releases(state, table, queue.end_s, queue.count)
    steps = write_profile(state, entries, queue.end_s, queue.count, queue.time_s, queue.free)
    tasks = state.stages[queue.stage[first]].tasks
    at = 0
    while at < steps - 1 and queue.free[at] < tasks:
        at += 1
    spare = queue.free[at] - tasks
    best, given = -1, np.int64(0)
    for k in range(waiting):
        if k == first or (best >= 0 and queue.score[k] >= queue.score[best]):
            continue
        s = queue.stage[k]
        stage = state.stages[s]
        if stage.gang == 0:
            fits = min(spare, np.int64(clock.on_offer))
            if fits > 0:
                best, given = k, fits
        elif stage.tasks <= clock.on_offer:
            ends_s = clock.now + planned_s(state, table, s)
            if stage.tasks <= spare or ends_s <= queue.time_s[at]:
                best, given = k, np.int64(stage.tasks)
    if best < 0:
        return _NOBODY
    return _give(state, queue.stage[best], given)


@compiled
def _overtake_all(state, table, queue, waiting):
    """Conservative: the first in order that starts now if all before it are planned."""
    entries = write_releases(state, table, queue.end_s, queue.count)
    steps = write_profile(state, entries, queue.end_s, queue.count, queue.time_s, queue.free)
    in_order = np.argsort(queue.score[:waiting], kind="mergesort")  # stable: first come first
    for i in range(waiting):
        if queue.free[0] == 0:
            break
        s = queue.stage[in_order[i]]
        stage = state.stages[s]
        if stage.gang == 0:
            spare = queue.free[:steps].min()
            if spare > 0:
                return _give(state, s, spare)
            continue
        tasks, duration_s = np.int64(stage.tasks), planned_s(state, table, s)
        at = earliest(steps, queue.time_s, queue.free, tasks, duration_s)
        if at == 0:
            return _give(state, s, tasks)
        steps = reserve(steps, queue.time_s, queue.free, at, tasks, duration_s)
    return _NOBODY


@compiled
def _stay(state, table, queue, waiting):
    """Executors of a job serve it while it can use them; then others, unless gangs wait."""
    clock = state.clock[0]
    best, of_source = -1, False
    for k in range(waiting):
        stage = state.stages[queue.stage[k]]
        mine = stage.job == clock.source_job
        if stage.gang == 1 or (of_source and not mine):
            continue
        if (mine and not of_source) or best < 0 or queue.score[k] < queue.score[best]:
            best, of_source = k, mine
    if best < 0 or (clock.waiting > 0 and not of_source):
        return _NOBODY
    s = queue.stage[best]
    supply = np.int64(state.jobs[state.stages[s].job].supply)
    return s, supply + (0 if of_source else clock.on_offer)


@compiled
def choose_batch(state, table, queue):
    """The stage to serve and the limit of its job; stage -1: nobody starts now."""
    clock, backfill = state.clock[0], queue.rule[0].backfill
    waiting = _queue_up(state, table, queue)
    if clock.source_job >= 0:
        return _stay(state, table, queue, waiting)
    first = _first(queue, waiting)
    s = queue.stage[first]
    stage = state.stages[s]
    if stage.gang == 0:
        return _give(state, s, np.int64(clock.on_offer))
    if stage.tasks <= clock.on_offer:
        return _give(state, s, np.int64(stage.tasks))
    if backfill == EASY:
        return _overtake_first(state, table, queue, waiting, first)
    if backfill == CONSERVATIVE:
        return _overtake_all(state, table, queue, waiting)
    return _NOBODY


@compiled
def run_batch(state, table, queue):
    """Drive a loaded state under the rule until no event is left."""
    while advance(state, table) == 1:
        s, limit = choose_batch(state, table, queue)
        if s < 0:
            decline(state, table)
        else:
            decide(state, table, s, limit)
