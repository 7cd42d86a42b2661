"""Trajectories laid end to end, and minibatches gathered from them for the learner."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.policy.features import Rows, new_rows
from ganger.policy.minibatch import Minibatch, new_minibatch, pack
from ganger.training.acting import Decisions


class ActorTrajectory(NamedTuple):
    """What an acting call made: `steps` decisions in each environment, then an observation."""

    rows: Rows
    decisions: Decisions
    levels: NDArray[np.int32]  # [environments, LEVELS]
    cells: NDArray[np.int64]  # [environments]: which of the run's cells each is
    steps: int


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
        self.cells = np.concatenate([trajectory.cells for trajectory in trajectories])
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
        out = new_minibatch(len(index), stages, jobs, edges)
        *_, legal = pack(rows, self.chosen, self.level, self.levels, self.steps + 1, index, out)
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
