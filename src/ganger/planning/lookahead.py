"""Look ahead before each decision: try out the likely ones in the simulator, take the cheapest.

One-step rollout (Bertsekas & Castanon 1999, "Rollout algorithms for stochastic scheduling
problems"). Proposals are the policy's most probable decisions and those of a few heuristics. Each
is tried out once in what is known of the state (`simulator/known.py`): the policy decides from then
on until the jobs of now are done. The proposal after which these jobs spend the least time in the
system is the decision.
"""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ganger.compiled import compiled
from ganger.policy.features import write_features
from ganger.policy.forward import choose, choose_decision, limit_logits, stage_logits
from ganger.policy.layout import LEVELS
from ganger.schedulers.rule import choose as choose_by_rule
from ganger.simulator.engine import advance, amount, decide, job_seconds
from ganger.simulator.known import copy_known, copy_state
from ganger.structs import ArrayStruct

PROPOSAL = np.dtype([("probability", "f8"), ("stage", "i8"), ("limit", "i8"), ("amount", "i8")])

# Plain literals would make Numba compile the callee once more for each of them.
_FIRST, _LEVELS, _KEY, _FALSE = np.int64(0), np.int64(LEVELS), np.uint64(0), np.bool_(False)
_CERTAIN = 1.0  # of proposals that come before all others: the policy's own decision, heuristics'


class Plan(ArrayStruct):
    """Room for a decision's proposals."""

    proposals: Any  # by falling probability
    stage_probability: Any  # [stages]
    FIELDS: ClassVar = {"proposals": (PROPOSAL, 1), "stage_probability": (np.float64, 1)}


class Learned(NamedTuple):
    """A policy, and the room that it decides in."""

    weights: Any
    scratch: Any
    rows: Any
    levels: Any
    messages: Any


class Room(NamedTuple):
    """Where decisions are tried out; one for each thread."""

    plan: Any
    known: Any
    moved: Any
    trial: Any
    desk: Any


@compiled
def _put(state, plan, count, probability, s, limit):
    """Add a proposal unless the same is there; the least probable one makes room.

    Returns how many there are now.
    """
    given = amount(state, s, limit)
    for k in range(count):
        if plan.proposals[k].stage == s and plan.proposals[k].amount == given:
            return count
    at = min(count, plan.proposals.shape[0] - 1)
    if at < count and plan.proposals[at].probability >= probability:
        return count
    while at > 0 and plan.proposals[at - 1].probability < probability:
        plan.proposals[at] = plan.proposals[at - 1]
        at -= 1
    new = plan.proposals[at]
    new.probability = probability
    new.stage = s
    new.limit = limit
    new.amount = given
    return min(count + 1, plan.proposals.shape[0])


@compiled
def _propose(state, table, learned, plan, least):
    """The policy's own decision, and all others of probability `least` or more."""
    weights, scratch, rows, levels, messages = learned
    write_features(state, table, rows, _FIRST, messages, _FALSE, scratch.path, scratch.work_path)
    stages = np.int64(rows.stage_pointer[1])
    stage_logits(weights, scratch, rows, _FIRST, messages)
    likeliest, _ = choose(scratch.logits, stages, scratch.probabilities, -1.0)
    for r in range(stages):
        plan.stage_probability[r] = scratch.probabilities[r]
    count = 0
    for r in range(stages):
        of_stage = plan.stage_probability[r]
        if of_stage < least and r != likeliest:
            continue
        limit_logits(weights, scratch, rows, _FIRST, r, levels, messages)
        best, _ = choose(scratch.level_logits, _LEVELS, scratch.probabilities, -1.0)
        s = np.int64(rows.stage_index[r])
        for k in range(_LEVELS):
            probability = of_stage * scratch.probabilities[k]
            if r == likeliest and k == best:
                probability = _CERTAIN
            if probability >= least:
                count = _put(state, plan, count, probability, s, np.int64(levels[k]))
    return count


@compiled
def try_out(state, table, learned, most):
    """Let the policy decide until all is done. Job-seconds that took, and decisions.

    Infinitely many job-seconds if they are more than `most`.
    """
    weights, scratch, rows, levels, messages = learned
    decisions = state.clock[0].decisions
    while advance(state, table) == 1:
        if job_seconds(state) >= most:
            return math.inf, state.clock[0].decisions - decisions
        chosen, level, _ = choose_decision(
            state, table, weights, scratch, rows, _FIRST, levels, messages, _FALSE, _KEY, _FALSE
        )
        decide(state, table, rows.stage_index[chosen], levels[level])
    return job_seconds(state), state.clock[0].decisions - decisions


@compiled
def _plan(state, table, told_table, told, learned, room, rules, least, budget):
    """The index in the plan's proposals of the one to take."""
    plan, known, moved, trial, desk = room
    count = _propose(state, table, learned, plan, least)
    copy_known(state, told_table, told, known, moved)
    for r in range(rules.shape[0]):
        desk.rule[0] = rules[r]
        desk.useful[:] = 0.0
        s, limit = choose_by_rule(known, told_table, desk, _KEY)
        if s >= 0:
            a = known.stages[s].job
            j = state.active[a]
            s += state.jobs[j].first_stage - known.jobs[a].first_stage
            count = _put(state, plan, count, _CERTAIN, s, limit)
    best = 0
    if count == 1:
        return best
    least_cost = math.inf
    for k in range(count):
        s = plan.proposals[k].stage
        copy_state(known, trial)
        decide(trial, told_table, s + moved.stage[state.stages[s].job], plan.proposals[k].limit)
        cost, decisions = try_out(trial, told_table, learned, least_cost)
        if cost < least_cost:
            best = k
            least_cost = cost
        budget -= decisions
        if budget <= 0:
            break
    return best


@compiled
def run_planned(state, table, told_table, told, learned, room, rules, least, budget):
    """Drive a loaded state until no event is left.

    rules: of the heuristics that propose; least: probability of a proposal of the policy's;
    budget: no further proposal is tried out after so many simulated decisions.
    """
    while advance(state, table) == 1:
        best = _plan(state, table, told_table, told, learned, room, rules, least, budget)
        chosen = room.plan.proposals[best]
        decide(state, table, chosen.stage, chosen.limit)
