"""Decisions packed without padding, as the learner computes on them."""

from typing import Any, ClassVar

import numpy as np

from ganger.compiled import compiled
from ganger.policy.features import CRITIC_JOB_WIDTH, GLOBAL_WIDTH, STAGE_WIDTH
from ganger.policy.forward import write_level
from ganger.policy.layout import LEVEL_WIDTH, LEVELS
from ganger.structs import ArrayStruct


class Minibatch(ArrayStruct):
    """S stage rows, J job rows, L legal limits of B decisions; indices count from its first row."""

    stages: Any  # [S, STAGE_WIDTH]
    stage_job: Any  # [S]: row of jobs
    stage_decision: Any  # [S]
    stage_slot: Any  # [S]: place among its decision's stages
    stage_choice: Any  # [S]: 1 if it may be chosen
    stage_height: Any  # [S]: longest way to a leaf, for message passing
    edges: Any  # [E, 2]: parent and child rows
    jobs: Any  # [J, CRITIC_JOB_WIDTH]
    job_decision: Any  # [J]
    globals: Any  # [B, GLOBAL_WIDTH]
    chosen: Any  # [B]: row of stages
    level: Any  # [B]
    level_features: Any  # [L, LEVEL_WIDTH]: a row for each legal limit
    level_decision: Any  # [L]
    level_slot: Any  # [L]: index of the limit
    FIELDS: ClassVar = {
        "stages": (np.float32, 2),
        "stage_job": (np.int64, 1),
        "stage_decision": (np.int64, 1),
        "stage_slot": (np.int64, 1),
        "stage_choice": (np.bool_, 1),
        "stage_height": (np.int64, 1),
        "edges": (np.int64, 2),
        "jobs": (np.float32, 2),
        "job_decision": (np.int64, 1),
        "globals": (np.float32, 2),
        "chosen": (np.int64, 1),
        "level": (np.int64, 1),
        "level_features": (np.float32, 2),
        "level_decision": (np.int64, 1),
        "level_slot": (np.int64, 1),
    }


def new_minibatch(decisions: int, stages: int, jobs: int, edges: int) -> Minibatch:
    """Room for that many decisions, stage rows, job rows and edges."""
    return Minibatch(
        stages=np.empty((stages, STAGE_WIDTH), np.float32),
        stage_job=np.empty(stages, np.int64),
        stage_decision=np.empty(stages, np.int64),
        stage_slot=np.empty(stages, np.int64),
        stage_choice=np.empty(stages, np.bool_),
        stage_height=np.empty(stages, np.int64),
        edges=np.empty((edges, 2), np.int64),
        jobs=np.empty((jobs, CRITIC_JOB_WIDTH), np.float32),
        job_decision=np.empty(jobs, np.int64),
        globals=np.empty((decisions, GLOBAL_WIDTH), np.float32),
        chosen=np.empty(decisions, np.int64),
        level=np.empty(decisions, np.int64),
        level_features=np.empty((decisions * LEVELS, LEVEL_WIDTH), np.float32),
        level_decision=np.empty(decisions * LEVELS, np.int64),
        level_slot=np.empty(decisions * LEVELS, np.int64),
    )


@compiled
def pack(rows, chosen, level, levels, per_environment, index, out):
    """Pack the decisions `index` of a trajectory's rows into a minibatch.

    chosen, level: [decisions]; levels: [environments, LEVELS]; per_environment: decisions of one.

    Returns:
        How many stage rows, job rows and legal limits there are.
    """
    stage_at = 0
    job_at = 0
    edge_at = 0
    level_at = 0
    for b in range(len(index)):
        d = index[b]
        first_stage, last_stage = rows.stage_pointer[d], rows.stage_pointer[d + 1]
        first_job, last_job = rows.job_pointer[d], rows.job_pointer[d + 1]
        first_edge, last_edge = rows.edge_pointer[d], rows.edge_pointer[d + 1]
        for r in range(first_stage, last_stage):
            s = stage_at + r - first_stage
            for k in range(rows.stages.shape[1]):
                out.stages[s, k] = rows.stages[r, k]
            out.stage_job[s] = job_at + rows.stage_job[r]
            out.stage_decision[s] = b
            out.stage_slot[s] = r - first_stage
            out.stage_choice[s] = rows.stage_choice[r] != 0
            out.stage_height[s] = 0
        for e in range(last_edge - 1, first_edge - 1, -1):  # children come after their parents
            parent = stage_at + rows.edges[e, 0]
            child = stage_at + rows.edges[e, 1]
            out.edges[edge_at + e - first_edge, 0] = parent
            out.edges[edge_at + e - first_edge, 1] = child
            out.stage_height[parent] = max(out.stage_height[parent], out.stage_height[child] + 1)
        for r in range(first_job, last_job):
            j = job_at + r - first_job
            for k in range(rows.jobs.shape[1]):
                out.jobs[j, k] = rows.jobs[r, k]
            out.job_decision[j] = b
        for k in range(rows.globals.shape[1]):
            out.globals[b, k] = rows.globals[d, k]
        out.chosen[b] = stage_at + chosen[d]
        out.level[b] = level[d]
        row = first_stage + chosen[d]
        if row < last_stage:
            own = rows.job_own[first_job + rows.stage_job[row]]
            for k in range(LEVELS):
                if write_level(
                    levels[d // per_environment],
                    k,
                    own,
                    rows.stage_demand[row],
                    rows.on_offer[d],
                    rows.executors[d],
                    out.level_features[level_at],
                ):
                    out.level_decision[level_at] = b
                    out.level_slot[level_at] = k
                    level_at += 1
        stage_at += last_stage - first_stage
        job_at += last_job - first_job
        edge_at += last_edge - first_edge
    return stage_at, job_at, level_at
