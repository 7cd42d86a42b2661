"""What the policy sees of a cluster: numbers about each stage it may choose, each job, the whole.

All are written straight into a trajectory's rows by compiled code. Sizes are logarithmic, shares
are of the whole cluster, so the same policy reads small and large clusters. Besides the counters
that Decima uses (Mao et al. 2019, section 5.1) there is what good heuristics use: a job's remaining
work, the critical path that is left, its rank among the jobs.

Work is estimated executor-seconds left, a running task counting half. A stage's path is the longest
chain of estimated task durations from it to the job's end; its work path is the heaviest chain of
remaining work.
"""

import math
from typing import Any, ClassVar

import numpy as np

from ganger.compiled import compiled
from ganger.simulator.engine import demand, is_schedulable, source_of_executor
from ganger.simulator.state import TASK_DONE
from ganger.structs import ArrayStruct

# One row per stage that may be chosen (or, for message passing, per unfinished stage).
STAGE_FEATURES = (
    "demand: log1p(executors it could use) / 5",
    "task: log1p(estimated seconds of one task) / 2",
    "demand_work: log1p(task seconds x demand) / 5",
    "runnable: 1 if all parents are done",
    "executors: running here / cluster",
    "children: number / 3",
    "source: 1 if the executors on offer come from this stage",
    "fill: min(demand, on offer) / cluster",
    "fits: 1 if the offer covers the demand",
    "coming: committed and moving executors / cluster",
    "path: log1p(seconds) / 3",
    "path_share: path / the job's longest path",
    "work_path: log1p(executor-seconds) / 5",
    "work_path_share: work path / the job's heaviest",
)

# One row per job in the system.
JOB_FEATURES = (
    "own: supply without the executors on offer / cluster",
    "source: 1 if the executors on offer are this job's",
    "offer: executors on offer / cluster",
    "unlaunched: log1p(tasks) / 5",
    "running: tasks / cluster",
    "unsaturated: stages / 10",
    "choices: schedulable stages / 5",
    "demand: log1p(executors its schedulable stages could use) / 5",
    "bound: executors / cluster",
    "stages: unfinished ones / 10",
    "task: log1p(mean task seconds of unfinished stages) / 2",
    "supply: executors / cluster",
    "work: log1p(executor-seconds) / 5",
    "path: log1p(longest path, seconds) / 3",
    "work_path: log1p(heaviest path, executor-seconds) / 5",
    "work_per_executor: log1p(work / (own + 1)) / 4",
    "parallelism: log1p(work / longest path) / 4",
    "rank: jobs with less work left / 5",
    "shorter: share of all work that these jobs hold",
    "share: of all work",
    "age: log1p(seconds since arrival) / 5",
    "own_count: log1p(own) / 4",
)

# The critic, which exists in training only, also sees when the running tasks will end.
HIDDEN_JOB_FEATURES = (
    "running_s: log1p(sum of true seconds until its running tasks end) / 5",
    "running_work: the same / 100",
    "longest_s: log1p(true seconds until the last of them ends) / 3",
)

# One row per decision. The policy sees the first POLICY_GLOBALS of them; the critic, which exists
# in training only, sees all: also the arrivals to come. They do not depend on what the policy does,
# so the baseline stays unbiased (LEARNING: the largest single gain).
POLICY_GLOBAL_FEATURES = (
    "jobs: in the system / 10",
    "unsaturated: jobs that could use executors / 10",
    "offer: executors on offer / cluster",
    "work: log1p(executor-seconds) / 5",
    "backlog: work / cluster, minutes",
    "idle: executors in pools / cluster",
    "log_jobs: log1p(jobs) / 2",
    "owned: 1 if the offer comes from a job",
    "size: log1p(executors in the cluster) / 4",
    "offer_count: log1p(executors on offer) / 4",
)
FUTURE_HORIZONS_S = (20.0, 60.0, 200.0, 600.0)
FUTURE_FEATURES = (
    "to_come: jobs / 50",
    "log_to_come: log1p(jobs) / 4",
    *(
        f"{what}, each weighted exp(-seconds until arrival / {horizon:.0f})"
        # The weight in the objective: unless that weighs jobs, 1.
        for what in ("job's weight", "work / 1000", "log1p(work) / 5")
        for horizon in FUTURE_HORIZONS_S
    ),
    *(
        f"{what} of the next arrival but {k}"
        for k in range(4)
        for what in ("exp(-seconds until / 40)", "log1p(work) / 5 x exp(-seconds until / 100)")
    ),
    "gap: log1p(mean seconds between arrivals) / 5, written by the actor",
)
CRITIC_JOB_WIDTH = len(JOB_FEATURES) + len(HIDDEN_JOB_FEATURES)
STAGE_WIDTH, JOB_WIDTH = len(STAGE_FEATURES), len(JOB_FEATURES)
POLICY_GLOBALS = len(POLICY_GLOBAL_FEATURES)
GLOBAL_WIDTH = POLICY_GLOBALS + len(FUTURE_FEATURES)
_NEXT, _HORIZONS = 4, len(FUTURE_HORIZONS_S)
_LOOK_AHEAD = 48  # arrivals further away weigh next to nothing


class Rows(ArrayStruct):
    """Rows of many decisions, one after another: decision d owns pointer[d]..pointer[d + 1]."""

    stages: Any  # [stage rows, STAGE_WIDTH]
    jobs: Any  # [job rows, CRITIC_JOB_WIDTH]: the policy sees the first JOB_WIDTH
    globals: Any  # [decisions, GLOBAL_WIDTH]
    stage_index: Any  # [stage rows]: the stage in the simulator's state
    stage_job: Any  # [stage rows]: its job's row, counted from the decision's first
    stage_choice: Any  # [stage rows]: 1 if it may be chosen
    stage_demand: Any  # [stage rows]: executors it could use
    edges: Any  # [edges, 2]: parent and child, stage rows counted from the decision's first
    stage_pointer: Any  # [decisions + 1]
    job_pointer: Any  # [decisions + 1]
    edge_pointer: Any  # [decisions + 1]
    job_own: Any  # [job rows]: supply without the executors on offer
    on_offer: Any  # [decisions]
    executors: Any  # [decisions]: in the cluster
    FIELDS: ClassVar = {
        "stages": (np.float32, 2),
        "jobs": (np.float32, 2),
        "globals": (np.float32, 2),
        "stage_index": (np.int32, 1),
        "stage_job": (np.int32, 1),
        "stage_choice": (np.uint8, 1),
        "stage_demand": (np.int32, 1),
        "edges": (np.int32, 2),
        "stage_pointer": (np.int64, 1),
        "job_pointer": (np.int64, 1),
        "edge_pointer": (np.int64, 1),
        "job_own": (np.int32, 1),
        "on_offer": (np.int32, 1),
        "executors": (np.int32, 1),
    }


def new_rows(decisions: int, stage_rows: int, job_rows: int, edges: int) -> Rows:
    """Empty rows with that much room."""
    return Rows(
        stages=np.empty((stage_rows, STAGE_WIDTH), np.float32),
        jobs=np.empty((job_rows, CRITIC_JOB_WIDTH), np.float32),
        globals=np.empty((decisions, GLOBAL_WIDTH), np.float32),
        stage_index=np.empty(stage_rows, np.int32),
        stage_job=np.empty(stage_rows, np.int32),
        stage_choice=np.empty(stage_rows, np.uint8),
        edges=np.empty((edges, 2), np.int32),
        stage_pointer=np.zeros(decisions + 1, np.int64),
        job_pointer=np.zeros(decisions + 1, np.int64),
        edge_pointer=np.zeros(decisions + 1, np.int64),
        job_own=np.empty(job_rows, np.int32),
        stage_demand=np.empty(stage_rows, np.int32),
        on_offer=np.empty(decisions, np.int32),
        executors=np.empty(decisions, np.int32),
    )


@compiled
def room_needed(state, table, every_stage):
    """Stage rows, job rows and edges that the next decision may write at most."""
    clock = state.clock[0]
    stages = 0
    edges = 0
    for a in range(clock.active):
        job = state.jobs[state.active[a]]
        if every_stage:
            stages += job.stages
            for s in range(job.first_stage, job.first_stage + job.stages):
                edges += table.stages[state.stages[s].template].children
        else:
            stages += job.schedulable
    return stages, clock.active, edges


@compiled
def write_features(state, table, rows, d, every_stage, future, path, work_path):
    """Write decision d's rows; rows before it are written already.

    every_stage: rows for all unfinished stages and their edges, not only for those that may be
    chosen. future: also what only the critic sees. path, work_path: scratch, [stages of the
    largest job] float64.
    """
    clock = state.clock[0]
    cluster = np.float64(clock.executors)
    offer = np.float64(clock.on_offer)
    source_job = clock.source_job
    source = source_of_executor(state, state.hand[clock.in_hand - 1]) if clock.in_hand > 0 else -1
    first_stage_row = rows.stage_pointer[d]
    first_job_row = rows.job_pointer[d]
    at_stage = first_stage_row
    at_job = first_job_row
    at_edge = rows.edge_pointer[d]
    all_work = 0.0
    unsaturated_jobs = 0
    for a in range(clock.active):
        j = np.int64(state.active[a])
        job = state.jobs[j]
        first = np.int64(job.first_stage)
        count = np.int64(job.stages)
        work = 0.0
        task_sum = 0.0
        longest = 0.0
        heaviest = 0.0
        unlaunched = 0
        running = 0
        unfinished = 0
        demands = 0
        choices = 0
        for k in range(count - 1, -1, -1):
            stage = state.stages[first + k]
            after = 0.0
            work_after = 0.0
            given = table.stages[stage.template]
            for c in range(given.first_child, given.first_child + given.children):
                child = table.children[c]
                after = max(after, path[child])
                work_after = max(work_after, work_path[child])
            if stage.finished < stage.tasks:
                waiting = stage.tasks - stage.launched
                busy = stage.launched - stage.finished
                stage_work = stage.estimate_s * (waiting + 0.5 * busy)
                work += stage_work
                work_after += stage_work
                after += stage.estimate_s
                unlaunched += waiting
                running += busy
                unfinished += 1
                task_sum += stage.estimate_s
            path[k] = after
            work_path[k] = work_after
            longest = max(longest, after)
            heaviest = max(heaviest, work_after)
        all_work += work
        if job.unsaturated > 0:
            unsaturated_jobs += 1
        is_source = j == source_job
        own = np.int64(job.supply)
        if is_source:
            own -= clock.on_offer
        if every_stage or job.schedulable > 0:
            job_row = at_job - first_job_row
            job_first_row = at_stage
            for k in range(count):
                s = first + k
                may_choose = is_schedulable(state, s)
                stage = state.stages[s]
                if not may_choose and not (every_stage and stage.finished < stage.tasks):
                    continue
                could_use = demand(state, s)
                if may_choose:
                    choices += 1
                    demands += could_use
                x = rows.stages[at_stage]
                x[0] = math.log1p(max(could_use, 0)) / 5
                x[1] = math.log1p(stage.estimate_s) / 2
                x[2] = math.log1p(stage.estimate_s * max(could_use, 0)) / 5
                x[3] = 1.0 if stage.unfinished_parents == 0 else 0.0
                x[4] = stage.executors / cluster
                x[5] = table.stages[stage.template].children / 3
                x[6] = 1.0 if s == source else 0.0
                x[7] = min(could_use, offer) / cluster
                x[8] = 1.0 if could_use <= offer else 0.0
                x[9] = (stage.committed + stage.moving) / cluster
                x[10] = math.log1p(path[k]) / 3
                x[11] = path[k] / max(longest, 1e-9)
                x[12] = math.log1p(work_path[k]) / 5
                x[13] = work_path[k] / max(heaviest, 1e-9)
                rows.stage_index[at_stage] = s
                rows.stage_job[at_stage] = job_row
                rows.stage_choice[at_stage] = 1 if may_choose else 0
                rows.stage_demand[at_stage] = could_use
                at_stage += 1
            if every_stage:
                # A child of an unfinished stage is unfinished: it has a row, further down.
                for r in range(job_first_row, at_stage):
                    given = table.stages[state.stages[rows.stage_index[r]].template]
                    for c in range(given.first_child, given.first_child + given.children):
                        child_stage = first + table.children[c]
                        t = r + 1
                        while rows.stage_index[t] != child_stage:
                            t += 1
                        rows.edges[at_edge, 0] = r - first_stage_row
                        rows.edges[at_edge, 1] = t - first_stage_row
                        at_edge += 1
        y = rows.jobs[at_job]
        y[0] = own / cluster
        y[1] = 1.0 if is_source else 0.0
        y[2] = offer / cluster
        y[3] = math.log1p(unlaunched) / 5
        y[4] = running / cluster
        y[5] = job.unsaturated / 10
        y[6] = choices / 5
        y[7] = math.log1p(demands) / 5
        y[8] = job.executors / cluster
        y[9] = unfinished / 10
        y[10] = math.log1p(task_sum / max(unfinished, 1)) / 2
        y[11] = job.supply / cluster
        y[12] = math.log1p(work) / 5
        y[13] = math.log1p(longest) / 3
        y[14] = math.log1p(heaviest) / 5
        y[15] = math.log1p(work / (max(own, 0) + 1)) / 4
        y[16] = math.log1p(work / max(longest, 1e-3)) / 4
        y[19] = work  # made a share below
        y[20] = math.log1p(clock.now - job.arrival_s) / 5
        y[21] = math.log1p(max(own, 0)) / 4
        rows.job_own[at_job] = own
        job.row = at_job
        at_job += 1
    for r in range(first_job_row, at_job):
        rank = 0
        shorter = 0.0
        mine = rows.jobs[r, 19]
        for other in range(first_job_row, at_job):
            work = rows.jobs[other, 19]
            if work < mine:
                rank += 1
                shorter += work
        rows.jobs[r, 17] = rank / 5
        rows.jobs[r, 18] = shorter / max(all_work, 1e-9)
    for r in range(first_job_row, at_job):
        rows.jobs[r, 19] /= max(all_work, 1e-9)
    g = rows.globals[d]
    g[0] = clock.active / 10
    g[1] = unsaturated_jobs / 10
    g[2] = offer / cluster
    g[3] = math.log1p(all_work) / 5
    g[4] = all_work / cluster / 60
    g[5] = clock.idle / cluster
    g[6] = math.log1p(clock.active) / 2
    g[7] = 1.0 if source_job >= 0 else 0.0
    g[8] = math.log1p(cluster) / 4
    g[9] = math.log1p(offer) / 4
    if future:
        write_future(state, table, g)
        _write_running(state, rows, first_job_row, at_job)
    rows.on_offer[d] = clock.on_offer
    rows.executors[d] = clock.executors
    rows.stage_pointer[d + 1] = at_stage
    rows.job_pointer[d + 1] = at_job
    rows.edge_pointer[d + 1] = at_edge


@compiled
def _write_running(state, rows, first_row, last_row):
    """Write what only the critic sees of each job: how long its running tasks still take."""
    clock = state.clock[0]
    for r in range(first_row, last_row):
        rows.jobs[r, JOB_WIDTH] = 0.0
        rows.jobs[r, JOB_WIDTH + 2] = 0.0
    for k in range(clock.heap_size):
        event = state.heap[k]
        if event.what & 1 == TASK_DONE:
            stage = state.stages[state.executors[event.what >> 1].stage]
            y = rows.jobs[state.jobs[stage.job].row]
            left_s = event.time - clock.now
            y[JOB_WIDTH] += left_s
            y[JOB_WIDTH + 2] = max(y[JOB_WIDTH + 2], left_s)
    for r in range(first_row, last_row):
        y = rows.jobs[r]
        y[JOB_WIDTH + 1] = y[JOB_WIDTH] / 100
        y[JOB_WIDTH] = math.log1p(y[JOB_WIDTH]) / 5
        y[JOB_WIDTH + 2] = math.log1p(y[JOB_WIDTH + 2]) / 3


@compiled
def write_future(state, table, g):
    """Write what only the critic sees: the arrivals to come."""
    clock = state.clock[0]
    for k in range(POLICY_GLOBALS, GLOBAL_WIDTH):
        g[k] = 0.0
    to_come = clock.jobs - clock.arrived
    at = POLICY_GLOBALS
    g[at] = to_come / 50
    g[at + 1] = math.log1p(to_come) / 4
    at += 2
    for k in range(min(to_come, _LOOK_AHEAD)):
        job = state.jobs[clock.arrived + k]
        template = table.templates[job.template]
        work = template.work_s
        weight = template.weight
        log_work = math.log1p(work) / 5
        wait = job.arrival_s - clock.now
        # exp(-wait / h) for all horizons from one exponential: 600 s is a multiple of each.
        w600 = math.exp(-wait / 600.0)
        w200 = w600 * w600 * w600
        w100 = w200 * w200
        w60 = w200 * w200 * w200 * w600
        w20 = w60 * w60 * w60
        near = (w20, w60, w200 / 3, w600 / 10)
        for h in range(_HORIZONS):
            g[at + h] += near[h] * weight
            g[at + _HORIZONS + h] += near[h] * work / 1000
            g[at + 2 * _HORIZONS + h] += near[h] * log_work
        if k < _NEXT:
            g[at + 3 * _HORIZONS + 2 * k] = math.exp(-wait / 40.0)
            g[at + 3 * _HORIZONS + 2 * k + 1] = log_work * w100
