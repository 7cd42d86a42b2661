"""Trajectories laid end to end, and minibatches gathered from them for the learner."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import compiled
from ganger.policy.features import GLOBAL_WIDTH, JOB_WIDTH, STAGE_WIDTH, Rows, new_rows
from ganger.policy.forward import write_level
from ganger.policy.layout import LEVEL_WIDTH, LEVELS
from ganger.structs import ArrayStruct
from ganger.training.acting import Decisions


class ActorTrajectory(NamedTuple):
    """What an acting call made: `steps` decisions in each environment, then an observation."""

    rows: Rows
    decisions: Decisions
    levels: NDArray[np.int32]  # [environments, LEVELS]
    steps: int


class Minibatch(ArrayStruct):
    """Some decisions, packed without padding; indices count from the minibatch's first row."""

    stages: Any  # [S, STAGE_WIDTH]
    stage_job: Any  # [S]: row of jobs
    stage_decision: Any  # [S]
    stage_slot: Any  # [S]: place among its decision's stages
    stage_choice: Any  # [S]: 1 if it may be chosen
    stage_height: Any  # [S]: longest way to a leaf, for message passing
    edges: Any  # [E, 2]: parent and child rows
    jobs: Any  # [J, JOB_WIDTH]
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


@compiled
def _fill(rows, chosen, level, levels, per_environment, index, out):
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
    return level_at


class Samples:
    """The decisions of one update: N environments, T decisions each and the observation after.

    Decision d = environment x (T + 1) + t; the arrays that have a value for each are [N, T + 1].
    """

    def __init__(self, trajectories: list[ActorTrajectory]) -> None:
        self.steps = trajectories[0].steps
        if any(trajectory.steps != self.steps for trajectory in trajectories):
            raise ValueError("trajectories of different lengths")
        self.rows = _joined([trajectory.rows for trajectory in trajectories])
        self.levels = np.concatenate([trajectory.levels for trajectory in trajectories])
        self.environments = len(self.levels)

        def joined(name: str) -> Any:
            return np.concatenate([getattr(t.decisions, name) for t in trajectories])

        self.chosen, self.level = joined("chosen"), joined("level")
        shape = (self.environments, self.steps + 1)
        self.log_probability = joined("log_probability").reshape(shape)
        self.cost = joined("cost").reshape(shape)
        self.elapsed_s = joined("elapsed_s").reshape(shape)
        self.done = joined("done").reshape(shape)
        grid = np.arange(self.environments * (self.steps + 1)).reshape(shape)
        self.made = np.ascontiguousarray(grid[:, :-1]).reshape(-1)
        """Indices of the decisions that were made."""

    def gather(self, index: NDArray[np.int64]) -> Minibatch:
        """The decisions with these indices."""
        rows = self.rows
        stages = int((rows.stage_pointer[index + 1] - rows.stage_pointer[index]).sum())
        jobs = int((rows.job_pointer[index + 1] - rows.job_pointer[index]).sum())
        edges = int((rows.edge_pointer[index + 1] - rows.edge_pointer[index]).sum())
        batch = len(index)
        out = Minibatch(
            stages=np.empty((stages, STAGE_WIDTH), np.float32),
            stage_job=np.empty(stages, np.int64),
            stage_decision=np.empty(stages, np.int64),
            stage_slot=np.empty(stages, np.int64),
            stage_choice=np.empty(stages, np.bool_),
            stage_height=np.empty(stages, np.int64),
            edges=np.empty((edges, 2), np.int64),
            jobs=np.empty((jobs, JOB_WIDTH), np.float32),
            job_decision=np.empty(jobs, np.int64),
            globals=np.empty((batch, GLOBAL_WIDTH), np.float32),
            chosen=np.empty(batch, np.int64),
            level=np.empty(batch, np.int64),
            level_features=np.empty((batch * LEVELS, LEVEL_WIDTH), np.float32),
            level_decision=np.empty(batch * LEVELS, np.int64),
            level_slot=np.empty(batch * LEVELS, np.int64),
        )
        legal = _fill(rows, self.chosen, self.level, self.levels, self.steps + 1, index, out)
        return out.replace(
            level_features=out.level_features[:legal],
            level_decision=out.level_decision[:legal],
            level_slot=out.level_slot[:legal],
        )


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    ends = {
        "stage_pointer": [int(part.stage_pointer[-1]) for part in parts],
        "job_pointer": [int(part.job_pointer[-1]) for part in parts],
        "edge_pointer": [int(part.edge_pointer[-1]) for part in parts],
    }
    decisions = sum(len(part.on_offer) for part in parts)
    joined = new_rows(decisions, *(sum(counts) for counts in ends.values()))
    lengths = {
        "stages": "stage_pointer",
        "stage_index": "stage_pointer",
        "stage_job": "stage_pointer",
        "stage_choice": "stage_pointer",
        "stage_demand": "stage_pointer",
        "jobs": "job_pointer",
        "job_own": "job_pointer",
        "edges": "edge_pointer",
    }
    for name in Rows.FIELDS:
        target = getattr(joined, name)
        at = 0
        if name in ends:
            offset = 0
            for part, end in zip(parts, ends[name], strict=True):
                pointer = getattr(part, name)
                target[at : at + len(pointer)] = pointer + offset
                at += len(pointer) - 1
                offset += end
            continue
        for k, part in enumerate(parts):
            source = getattr(part, name)
            if name in lengths:  # rows may have spare room at their end
                source = source[: ends[lengths[name]][k]]
            target[at : at + len(source)] = source
            at += len(source)
    return joined
