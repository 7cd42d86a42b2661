"""Decisions that look at how big executors are and what stages demand: compiled, for both."""

import math
from typing import Any, ClassVar

import numpy as np

from ganger.compiled import compiled
from ganger.schedulers.measures import first_schedulable, remaining_work_s
from ganger.simulator.engine import advance, decide, demand, is_schedulable
from ganger.simulator.state import State
from ganger.structs import ArrayStruct

DOMINANT, PACKING = 0, 1


class Scales(ArrayStruct):
    """Room for a decision."""

    share: Any  # [jobs]: of the active jobs
    given: Any  # [jobs]: executors on offer that each would get
    wants: Any  # [jobs]: executors that its stages could use now
    FIELDS: ClassVar = {
        "share": (np.float64, 1),
        "given": (np.int64, 1),
        "wants": (np.int64, 1),
    }


def new_scales(state: State) -> Scales:
    """Room for decisions in a state."""
    jobs = len(state.jobs)
    return Scales(
        share=np.zeros(jobs), given=np.zeros(jobs, np.int64), wants=np.zeros(jobs, np.int64)
    )


@compiled
def _wants(state, j):
    job = state.jobs[j]
    wants = np.int64(0)
    if job.schedulable > 0:
        for s in range(job.first_stage, job.first_stage + job.stages):
            if is_schedulable(state, s):
                wants += demand(state, s)
    return wants


@compiled
def _shares(state, scales):
    """Fill in the jobs' dominant shares, without the executors on offer; the share of one of those.

    A resource that some executors have without limit is not scarce: nobody has a share of it. Where
    none is left, and without classes, an executor is the only resource.
    """
    clock = state.clock[0]
    cores = memory = 0.0
    for e in range(clock.executors):
        cores += state.executors[e].cores
        memory += state.executors[e].memory
    if math.isinf(cores):
        cores = 0.0
    if math.isinf(memory):
        memory = 0.0
    offered = state.executors[state.hand[clock.in_hand - 1]]
    sized = cores > 0.0 or memory > 0.0
    whole = 1.0 / clock.executors
    of_offered = whole
    if sized:
        of_offered = max(
            offered.cores / cores if cores > 0.0 else 0.0,
            offered.memory / memory if memory > 0.0 else 0.0,
        )
    for a in range(clock.active):
        j = state.active[a]
        job_cores = job_memory = 0.0
        counted = 0
        for e in range(clock.executors):
            executor = state.executors[e]
            if executor.job == j or (
                executor.target >= 0 and state.stages[executor.target].job == j
            ):
                job_cores += executor.cores
                job_memory += executor.memory
                counted += 1
        # Those promised to it by others are taken to be like those on offer.
        more = np.int64(state.jobs[j].supply) - counted
        if j == clock.source_job:
            more -= clock.on_offer
        if sized:
            share = max(
                job_cores / cores if cores > 0.0 else 0.0,
                job_memory / memory if memory > 0.0 else 0.0,
            )
            scales.share[a] = share + more * of_offered
        else:
            scales.share[a] = (counted + more) * whole
    return of_offered


@compiled
def _choose_dominant(state, scales):
    """Fill up from the least dominant share; stage and limit of the job that is first then."""
    clock = state.clock[0]
    of_offered = _shares(state, scales)
    first, least = -1, math.inf
    for a in range(clock.active):
        scales.given[a] = 0
        scales.wants[a] = _wants(state, state.active[a])
        if scales.wants[a] > 0 and scales.share[a] < least:
            first, least = a, scales.share[a]
    for _ in range(clock.on_offer):
        best, least = -1, math.inf
        for a in range(clock.active):
            share = scales.share[a] + scales.given[a] * of_offered
            if scales.given[a] < scales.wants[a] and share < least:
                best, least = a, share
        if best < 0:
            break
        scales.given[best] += 1
    j = np.int64(state.active[first])
    own = np.int64(state.jobs[j].supply)
    if j == clock.source_job:
        own -= clock.on_offer
    return first_schedulable(state, j), own + max(scales.given[first], 1)


@compiled
def _alignment(state, table, s, offered, cores, memory):
    """How well a stage's demand fills an executor: the dot product of the two, each of the largest
    limited executor's size. One without limit is as large as that."""
    asked = table.stages[state.stages[s].template]
    fit = 0.0
    if cores > 0.0:
        fit += (asked.cores / cores) * (min(offered.cores, cores) / cores)
    if memory > 0.0:
        fit += (asked.memory / memory) * (min(offered.memory, memory) / memory)
    return fit


@compiled
def _choose_packing(state, table, weight):
    """The stage of the best alignment and least work left; it gets all on offer."""
    clock = state.clock[0]
    cores = memory = 0.0
    for e in range(clock.executors):
        if not math.isinf(state.executors[e].cores):
            cores = max(cores, state.executors[e].cores)
        if not math.isinf(state.executors[e].memory):
            memory = max(memory, state.executors[e].memory)
    offered = state.executors[state.hand[clock.in_hand - 1]]
    stages, fits, works = 0, 0.0, 0.0
    for a in range(clock.active):
        j = np.int64(state.active[a])
        job = state.jobs[j]
        if job.schedulable == 0:
            continue
        work_s = remaining_work_s(state, j)
        for s in range(job.first_stage, job.first_stage + job.stages):
            if is_schedulable(state, s):
                stages += 1
                fits += _alignment(state, table, s, offered, cores, memory)
                works += work_s
    # Both terms then are of the same size on average.
    to_fit = weight * (fits / works if fits > 0.0 else 1.0 / max(works, 1e-9)) if works > 0 else 0.0
    best, highest = np.int64(-1), -math.inf
    for a in range(clock.active):
        j = np.int64(state.active[a])
        job = state.jobs[j]
        if job.schedulable == 0:
            continue
        work_s = remaining_work_s(state, j)
        for s in range(job.first_stage, job.first_stage + job.stages):
            if is_schedulable(state, s):
                score = _alignment(state, table, s, offered, cores, memory) - to_fit * work_s
                if state.stages[s].unfinished_parents > 0:
                    score -= 1e6  # what can start now comes first
                if score > highest:
                    best, highest = np.int64(s), score
    j = np.int64(state.stages[best].job)
    limit = np.int64(state.jobs[j].supply)
    return best, limit + (0 if j == clock.source_job else clock.on_offer)


@compiled
def choose_by_size(state, table, scales, which, weight):
    """The stage to serve and the limit of its job."""
    if which == DOMINANT:
        return _choose_dominant(state, scales)
    return _choose_packing(state, table, weight)


@compiled
def run_by_size(state, table, scales, which, weight):
    """Drive a loaded state until no event is left."""
    while advance(state, table) == 1:
        s, limit = choose_by_size(state, table, scales, which, weight)
        decide(state, table, s, limit)
