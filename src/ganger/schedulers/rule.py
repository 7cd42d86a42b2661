"""The one compiled decision that every built-in heuristic is a setting of.

A heuristic answers five questions, and a `RULE` record holds its answers:

order     which job comes first?
cap       how many executors may a job have?
source    do the executors on offer stay with the job that they come from?
leftover  when no job may have more, who gets the executors that are left?
stage     which stage of the job?

One function for all, and not one per heuristic, because Numba compiles it together with the
simulator's loop: that takes seconds, so it should happen once.
"""

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import compiled, records
from ganger.schedulers.measures import (
    critical_path_s,
    first_schedulable,
    remaining_work_s,
    total_work_s,
)
from ganger.simulator.engine import advance, decide, decline, is_schedulable
from ganger.simulator.state import State
from ganger.streams import derive, uniform
from ganger.structs import ArrayStruct

# order: smallest first
ORDERS = {"arrival": 0, "work": 1, "path": 2, "random": 3}
ARRIVAL, WORK, PATH, RANDOM = ORDERS.values()
# cap: c, a and k are parameters, n the jobs that could use more executors
CAPS = {
    "none": 0,
    "share": 1,  # executors / n
    "weighted": 2,  # executors x work^a / sum of work^a
    "const": 3,  # c
    "sqrt": 4,  # c sqrt(work)
    "useful": 5,  # (c x average parallelism)^a x (executors / n)^(1 - a)
    "shortest": 6,  # executors / k for the k shortest jobs, 0 for the others
    "drawn": 7,  # 1 to all of the executors on offer more than now
}
NO_CAP, SHARE, WEIGHTED, CONST, SQRT, USEFUL, SHORTEST, DRAWN = CAPS.values()
# source: its job comes first and without a cap; it comes first up to its cap; it waits its turn
SOURCES = {"first": 0, "capped": 1, "ordered": 2}
FIRST, CAPPED, ORDERED = SOURCES.values()
# leftover: nobody; the first job in order
LEFTOVERS = {"idle": 0, "first": 1}
IDLE, TO_FIRST = LEFTOVERS.values()
# stage: the first in the job; the one with the longest path to the job's end
STAGES = {"first": 0, "path": 1}
FIRST_STAGE, LONGEST_PATH = STAGES.values()

Source = Literal["first", "capped", "ordered"]
Leftover = Literal["idle", "first"]

RULE = np.dtype(
    [
        ("c", "f8"),
        ("a", "f8"),
        ("order", "i4"),
        ("cap", "i4"),
        ("source", "i4"),
        ("leftover", "i4"),
        ("stage", "i4"),
        ("k", "i4"),
    ],
    align=True,
)

_LEAST_WORK_S = 1e-3  # of a job whose estimates are 0: keeps powers and ratios finite


class Desk(ArrayStruct):
    """A rule and the room to apply it: one for each thread."""

    rule: Any  # [1]
    order: Any  # [jobs]: of the active jobs, smallest is served first
    work_s: Any  # [jobs]: of the active jobs
    cap: Any  # [jobs]: of the active jobs
    useful: Any  # [jobs]: executors that a job can use well, 0 where not known yet
    path_s: Any  # [stages]: of one job
    FIELDS: ClassVar = {
        "rule": (RULE, 1),
        "order": (np.float64, 1),
        "work_s": (np.float64, 1),
        "cap": (np.int64, 1),
        "useful": (np.float64, 1),
        "path_s": (np.float64, 1),
    }


def rule(
    *,
    order: str = "arrival",
    cap: str = "none",
    source: str = "first",
    leftover: str = "idle",
    stage: str = "first",
    c: float = 0.0,
    a: float = 0.0,
    k: int = 0,
) -> NDArray[Any]:
    """One RULE record from the names of its answers."""
    made: NDArray[Any] = records(1, RULE)
    made["order"] = ORDERS[order]
    made["cap"] = CAPS[cap]
    made["source"] = SOURCES[source]
    made["leftover"] = LEFTOVERS[leftover]
    made["stage"] = STAGES[stage]
    made["c"], made["a"], made["k"] = c, a, k
    return made


def new_desk(rule: NDArray[Any], state: State) -> Desk:
    """Room to apply the rule to a state."""
    jobs = len(state.jobs)
    return Desk(
        rule=rule,
        order=np.zeros(jobs),
        work_s=np.zeros(jobs),
        cap=np.zeros(jobs, np.int64),
        useful=np.zeros(jobs),
        path_s=np.zeros(len(state.stages)),
    )


@compiled
def pick_stage(state, table, desk, j):
    """The job's next stage, or -1; stages that can start now come before those that cannot yet."""
    job = state.jobs[j]
    best = np.int64(-1)
    if job.schedulable == 0:
        return best
    if desk.rule[0].stage == LONGEST_PATH:
        critical_path_s(state, table, j, 0, desk.path_s)
        longest_s, best_runs = -1.0, False
        for k in range(job.stages):
            at = np.int64(job.first_stage) + k
            if is_schedulable(state, at):
                runs = state.stages[at].unfinished_parents == 0
                if (runs and not best_runs) or (runs == best_runs and desk.path_s[k] > longest_s):
                    best, longest_s, best_runs = at, desk.path_s[k], runs
        return best
    return first_schedulable(state, j)


@compiled
def _whole_offer(state, j):
    """The limit that gives the job all executors on offer."""
    clock = state.clock[0]
    return np.int64(state.jobs[j].supply) + (0 if j == clock.source_job else clock.on_offer)


@compiled
def _useful_executors(state, table, desk, j):
    """The job's average parallelism: work / critical path."""
    if desk.useful[j] == 0.0:  # of the whole job, so it does not change
        path_s = critical_path_s(state, table, j, 1, desk.path_s)
        work_s = total_work_s(state, j)
        desk.useful[j] = max(work_s, _LEAST_WORK_S) / max(path_s, _LEAST_WORK_S)
    return desk.useful[j]


@compiled
def _rank(state, desk, a):
    """How many jobs that could use executors are shorter than the a-th active one."""
    rank = 0
    for b in range(state.clock[0].active):
        shorter = desk.work_s[b] < desk.work_s[a] or (desk.work_s[b] == desk.work_s[a] and b < a)
        if shorter and state.jobs[state.active[b]].unsaturated > 0:
            rank += 1
    return rank


@compiled
def _order_and_cap(state, table, desk, key):
    """Fill in desk.order and desk.cap for every active job."""
    rule, clock = desk.rule[0], state.clock[0]
    draw = derive(key, clock.decisions)
    executors = np.int64(clock.executors)
    needs_work = rule.order == WORK or rule.cap in (WEIGHTED, SQRT, SHORTEST)
    n = 0
    weights = 0.0
    for a in range(clock.active):
        j = np.int64(state.active[a])
        if needs_work:
            desk.work_s[a] = remaining_work_s(state, j)
        if state.jobs[j].unsaturated > 0:
            n += 1
            if rule.cap == WEIGHTED:
                weights += math.pow(max(desk.work_s[a], _LEAST_WORK_S), rule.a)
        if rule.order == ARRIVAL:
            desk.order[a] = a
        elif rule.order == WORK:
            desk.order[a] = desk.work_s[a]
        elif rule.order == RANDOM:
            desk.order[a] = uniform(derive(draw, 1 + a))
        else:
            desk.order[a] = critical_path_s(state, table, j, 0, desk.path_s)
    n = max(n, 1)
    sharing = np.int64(min(n, rule.k))
    for a in range(clock.active):
        j = np.int64(state.active[a])
        if rule.cap == SHARE:
            desk.cap[a] = (executors + n - 1) // n
            continue
        if rule.cap == SHORTEST:
            rank = _rank(state, desk, a)
            desk.cap[a] = (executors + sharing - 1) // sharing if rank < sharing else 0
            continue
        if rule.cap == DRAWN:
            fewer = clock.on_offer - 1 - np.int64(uniform(derive(draw, 0)) * clock.on_offer)
            desk.cap[a] = _whole_offer(state, j) - fewer
            continue
        cap = float(executors)
        if rule.cap == CONST:
            cap = rule.c
        elif rule.cap == SQRT:
            cap = rule.c * math.sqrt(desk.work_s[a])
        elif rule.cap == WEIGHTED:
            if state.jobs[j].unsaturated > 0:  # the others ask for nothing
                cap = executors * math.pow(max(desk.work_s[a], _LEAST_WORK_S), rule.a) / weights
        elif rule.cap == USEFUL:
            useful = rule.c * _useful_executors(state, table, desk, j)
            cap = math.pow(useful, rule.a) * math.pow(executors / n, 1.0 - rule.a)
        desk.cap[a] = max(np.int64(math.ceil(min(cap, float(executors)))), 1)


@compiled
def _somebody_will_ask_again(state):
    """Whether some executor is sure to be offered later, so that those on offer now may idle.

    Idle executors of a job are offered when one of its stages becomes ready, not before. If all
    were left idle, nothing would ever happen again. An executor that is promised, on its way, or in
    a stage with tasks to come has no fate yet: it will be offered. So will those of a gang. Of
    executor classes that is not certain: those that will be offered may not serve what is left.
    """
    if state.clock[0].kinds > 0:
        return False
    for a in range(state.clock[0].active):
        job = state.jobs[state.active[a]]
        for s in range(job.first_stage, job.first_stage + job.stages):
            stage = state.stages[s]
            if stage.committed + stage.moving > 0 or stage.finished < stage.launched < stage.tasks:
                return True
            if stage.gang == 1 and stage.finished < stage.launched:
                return True
    return False


@compiled
def _first_in_order(state, table, desk, within_cap):
    """Stage and limit of the first job in order that may be served; stage -1 if there is none."""
    rule, clock = desk.rule[0], state.clock[0]
    best, limit = np.int64(-1), np.int64(0)
    least = math.inf
    for a in range(clock.active):
        j = np.int64(state.active[a])
        job = state.jobs[j]
        of_source = j == clock.source_job
        capped, order = within_cap, desk.order[a]
        if of_source and within_cap and rule.source != ORDERED:
            capped, order = rule.source == CAPPED, -math.inf
        if job.schedulable == 0 or order >= least:
            continue
        if capped and desk.cap[a] - job.supply + (clock.on_offer if of_source else 0) <= 0:
            continue
        s = pick_stage(state, table, desk, j)
        if s >= 0:
            best, least = s, order
            limit = desk.cap[a] if capped else _whole_offer(state, j)
    return best, limit


@compiled
def choose(state, table, desk, key):
    """The stage to serve and the limit of its job; stage -1: leave the executors idle."""
    rule = desk.rule[0]
    _order_and_cap(state, table, desk, key)
    s, limit = _first_in_order(state, table, desk, True)
    if s < 0:
        if rule.leftover == TO_FIRST:
            return _first_in_order(state, table, desk, False)
        may_idle = rule.source == FIRST and state.clock[0].kinds == 0
        if not may_idle and not _somebody_will_ask_again(state):
            s, _ = _first_in_order(state, table, desk, False)
            limit = np.int64(1)  # one executor: a decision gives at least that
    return s, limit


@compiled
def run_episode(state, table, desk, key):
    """Drive a loaded state under the rule until no event is left."""
    desk.useful[:] = 0.0
    while advance(state, table) == 1:
        s, limit = choose(state, table, desk, key)
        if s < 0:
            decline(state, table)
        else:
            decide(state, table, s, limit)
