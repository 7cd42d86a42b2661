"""One compiled call that steps any number of clusters and writes what is observed of them.

Observations are padded: row r of a cluster's stages, jobs or edges means something while r is below
the cluster's count of them, and holds zeros otherwise. Where there is more than fits, jobs and
stages that can be chosen now take the room first, then the others; of each kind those that come
first in the order of rows, which is jobs by arrival and their stages in topological order. So
something can always be chosen.
"""

from typing import Any, ClassVar

import numpy as np

from ganger.compiled import compiled
from ganger.policy.features import POLICY_GLOBALS, write_features
from ganger.policy.forward import write_level
from ganger.simulator.engine import advance, decide, job_seconds, load
from ganger.simulator.state import State
from ganger.streams import derive
from ganger.structs import ArrayStruct, struct_at
from ganger.workload.arrivals import draw_job_list

CLUSTER = np.dtype(
    [
        ("state", "i8"),  # address of its simulator State
        ("key", "u8"),  # random stream of the next episode
        ("mean_interarrival_s", "f8"),
        ("move_delay_s", "f8"),
        ("executors", "i4"),
        ("begin", "i4"),  # 1: the next step begins an episode, and its action is ignored
    ],
    align=True,
)
STAGES, JOBS, EDGES = 0, 1, 2  # columns of counts
HIDDEN_STAGES, HIDDEN_JOBS, NOT_OFFERED = 0, 1, 2  # columns of hidden
FEATURE_LIMIT = np.float32(1000.0)
"""Features beyond it are cut, so that the observation space has bounds."""

_state_at = struct_at(State)
# Plain literals would make Numba compile the callee once more for each of them.
_FIRST, _TRUE, _FALSE = np.int64(0), np.bool_(True), np.bool_(False)


class Clusters(ArrayStruct):
    """Clusters, what the last step observed of them, and scratch. N clusters, each padded."""

    clusters: Any  # [N]
    numbering: Any  # [templates of the source]: their places in the table
    limits: Any  # [LEVELS]: padded with zeros
    stages: Any  # [N x stages, STAGE_WIDTH]
    jobs: Any  # [N x jobs, JOB_WIDTH]
    globals: Any  # [N, POLICY_GLOBALS]
    stage_job: Any  # [N, stages]: row of its job
    edges: Any  # [N x edges, 2]: rows of parent and child
    counts: Any  # [N, 3]: rows of stages, jobs and edges
    mask: Any  # [N, stages x limits]: 1 where the action is legal
    stage_index: Any  # [N, stages]: the stage in the simulator's state
    hidden: Any  # [N, 3]: stages and jobs without a row; stages that could be chosen among them
    reward: Any  # [N]
    done: Any  # [N]: 1 if the episode ended
    replaced: Any  # [N]: 1 if the action was masked
    time_s: Any  # [N]
    mean_jct_s: Any  # [N]: of the episode that ended
    templates: Any  # scratch, [jobs of an episode]
    arrivals_s: Any  # scratch, [jobs of an episode]
    path: Any  # scratch, [stages of the largest job]
    work_path: Any  # scratch, likewise
    level: Any  # scratch, [LEVEL_WIDTH]
    job_place: Any  # scratch, [jobs of an episode]
    stage_place: Any  # scratch, [stages of an episode]
    FIELDS: ClassVar = {
        "clusters": (CLUSTER, 1),
        "numbering": (np.int32, 1),
        "limits": (np.int32, 1),
        "stages": (np.float32, 2),
        "jobs": (np.float32, 2),
        "globals": (np.float32, 2),
        "stage_job": (np.int32, 2),
        "edges": (np.int32, 2),
        "counts": (np.int32, 2),
        "mask": (np.int8, 2),
        "stage_index": (np.int32, 2),
        "hidden": (np.int32, 2),
        "reward": (np.float64, 1),
        "done": (np.uint8, 1),
        "replaced": (np.uint8, 1),
        "time_s": (np.float64, 1),
        "mean_jct_s": (np.float64, 1),
        "templates": (np.int32, 1),
        "arrivals_s": (np.float64, 1),
        "path": (np.float64, 1),
        "work_path": (np.float64, 1),
        "level": (np.float32, 1),
        "job_place": (np.int32, 1),
        "stage_place": (np.int32, 1),
    }


@compiled
def load_episode(all_clusters, i, state, table):
    """Load into the state the episode that cluster i's key stands for."""
    cluster = all_clusters.clusters[i]
    templates, arrivals_s = all_clusters.templates, all_clusters.arrivals_s
    draw_job_list(
        derive(cluster.key, 0),
        len(templates),
        cluster.mean_interarrival_s,
        len(all_clusters.numbering),
        templates,
        arrivals_s,
    )
    for j in range(len(templates)):
        templates[j] = all_clusters.numbering[templates[j]]
    load(
        state,
        table,
        templates,
        arrivals_s,
        cluster.executors,
        cluster.move_delay_s,
        derive(cluster.key, 1),
    )


@compiled
def _give_places(wanted, count, most):
    """Turn 2 (first served), 1 and 0 (no place) into places in order, or -1; returns how many."""
    free = most
    for kind in range(2, 0, -1):
        for r in range(count):
            if wanted[r] == kind:
                if free > 0:
                    wanted[r] = 3
                    free -= 1
                else:
                    wanted[r] = 0
    placed = 0
    for r in range(count):
        if wanted[r] == 3:
            wanted[r] = placed
            placed += 1
        else:
            wanted[r] = -1
    return placed


@compiled
def _copy_features(source, target):
    for k in range(len(target)):
        target[k] = min(max(source[k], -FEATURE_LIMIT), FEATURE_LIMIT)


@compiled
def _erase(c, i):
    stages, jobs = c.stage_job.shape[1], len(c.jobs) // len(c.clusters)
    edges = len(c.edges) // len(c.clusters)
    c.stages[i * stages : (i + 1) * stages] = 0
    c.jobs[i * jobs : (i + 1) * jobs] = 0
    c.edges[i * edges : (i + 1) * edges] = 0
    c.globals[i] = 0
    c.stage_job[i] = 0
    c.counts[i] = 0
    c.mask[i] = 0
    c.hidden[i] = 0


@compiled
def write_observation(c, i, state, table, rows):
    """Write what is observed of cluster i, which waits for a decision."""
    _erase(c, i)
    write_features(state, table, rows, _FIRST, _TRUE, _FALSE, c.path, c.work_path)
    stages, jobs, edges = rows.stage_pointer[1], rows.job_pointer[1], rows.edge_pointer[1]
    most_stages, most_jobs = c.stage_job.shape[1], len(c.jobs) // len(c.clusters)
    limits = c.mask.shape[1] // most_stages

    job_place, stage_place = c.job_place, c.stage_place
    for j in range(jobs):
        job_place[j] = 1
    for r in range(stages):
        if rows.stage_choice[r] == 1:
            job_place[rows.stage_job[r]] = 2
    shown_jobs = _give_places(job_place, jobs, most_jobs)
    for r in range(stages):
        has_job = job_place[rows.stage_job[r]] >= 0
        stage_place[r] = 1 + rows.stage_choice[r] if has_job else 0
    shown_stages = _give_places(stage_place, stages, most_stages)

    _copy_features(rows.globals[0, :POLICY_GLOBALS], c.globals[i])
    for j in range(jobs):
        if job_place[j] >= 0:
            _copy_features(rows.jobs[j], c.jobs[i * most_jobs + job_place[j]])
    offer, cluster = rows.on_offer[0], rows.executors[0]
    not_offered = 0
    for r in range(stages):
        may_choose = rows.stage_choice[r] == 1
        place = np.int64(stage_place[r])
        if place < 0:
            not_offered += may_choose
            continue
        _copy_features(rows.stages[r], c.stages[i * most_stages + place])
        c.stage_job[i, place] = job_place[rows.stage_job[r]]
        c.stage_index[i, place] = rows.stage_index[r]
        if may_choose:
            own, could_use = rows.job_own[rows.stage_job[r]], rows.stage_demand[r]
            for k in range(limits):
                legal = write_level(c.limits, k, own, could_use, offer, cluster, c.level)
                c.mask[i, place * limits + k] = 1 if legal else 0
    first_edge = i * (len(c.edges) // len(c.clusters))
    shown_edges = 0
    for e in range(edges):
        parent, child = stage_place[rows.edges[e, 0]], stage_place[rows.edges[e, 1]]
        if parent >= 0 and child >= 0:
            c.edges[first_edge + shown_edges, 0] = parent
            c.edges[first_edge + shown_edges, 1] = child
            shown_edges += 1
    counts, hidden = c.counts[i], c.hidden[i]
    counts[STAGES], counts[JOBS], counts[EDGES] = shown_stages, shown_jobs, shown_edges
    hidden[HIDDEN_STAGES] = stages - shown_stages
    hidden[HIDDEN_JOBS] = jobs - shown_jobs
    hidden[NOT_OFFERED] = not_offered


@compiled
def step(c, table, rows, actions):
    """Take an action in every cluster, or begin an episode where one is due."""
    limits = c.mask.shape[1] // c.stage_job.shape[1]
    for i in range(len(c.clusters)):
        cluster = c.clusters[i]
        state = _state_at(cluster.state)
        c.reward[i] = 0.0
        c.replaced[i] = 0
        if cluster.begin == 1:
            cluster.begin = 0
            load_episode(c, i, state, table)
            alive = advance(state, table)
        else:
            action = np.int64(actions[i])
            if c.mask[i, action] == 0:
                c.replaced[i] = 1
                action = 0
                while c.mask[i, action] == 0:
                    action += 1
            before = job_seconds(state)
            decide(state, table, c.stage_index[i, action // limits], c.limits[action % limits])
            alive = advance(state, table)
            c.reward[i] = -(job_seconds(state) - before) / len(c.templates)
        c.time_s[i] = state.clock[0].now
        c.done[i] = 1 - alive
        if alive == 1:
            write_observation(c, i, state, table, rows)
        else:
            c.mean_jct_s[i] = job_seconds(state) / len(c.templates)
            _erase(c, i)
