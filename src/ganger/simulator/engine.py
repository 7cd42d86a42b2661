"""The simulated cluster: events in, the next decision out. The rules are in docs/simulator.md.

A driver calls `load`, then `advance` until it returns 0; whenever it returns 1 the cluster waits
for a decision, which `decide` or `decline` gives.
"""

import math

import numpy as np

from ganger.compiled import compiled
from ganger.simulator.durations import task_duration_s, wave_of
from ganger.simulator.objectives import MAKESPAN, MEAN, TAIL
from ganger.simulator.state import EXECUTOR_ARRIVAL, TASK_DONE
from ganger.simulator.table import FRESH
from ganger.streams import derive

NAN = math.nan
MAX_CLASSES = 30  # bits of a stage's `refuses`


# ---------------------------------------------------- events: a heap by (time, sequence)
@compiled
def _sift_down(heap, size, time, sequence, what):
    """Place an event at the top, whose slot is free, and restore the heap's order."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size:
            a, b = heap[child], heap[right]
            if b.time < a.time or (b.time == a.time and b.sequence < a.sequence):
                child = right
        smaller = heap[child]
        if time < smaller.time or (time == smaller.time and sequence < smaller.sequence):
            break
        heap[i] = smaller
        i = child
    slot = heap[i]
    slot.time = time
    slot.sequence = sequence
    slot.what = what


@compiled
def push(state, time, what):
    """Plan an event."""
    # Ties go to the event pushed first: a run never depends on memory layout.
    clock, heap = state.clock[0], state.heap
    i = np.int64(clock.heap_size)
    clock.heap_size += 1
    clock.sequence += 1
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent].time <= time:
            break
        heap[i] = heap[parent]
        i = parent
    slot = heap[i]
    slot.time = time
    slot.sequence = clock.sequence
    slot.what = what


@compiled
def _pop(state):
    """Remove the first event."""
    clock, heap = state.clock[0], state.heap
    clock.heap_size -= 1
    size = np.int64(clock.heap_size)
    last = heap[size]
    _sift_down(heap, size, last.time, last.sequence, last.what)


# ---------------------------------------------------------------- predicates and counters
@compiled
def demand(state, s):
    """Executors that the stage could still use."""
    stage = state.stages[s]
    return stage.tasks - stage.launched - stage.committed - stage.moving


@compiled
def serves(state, kind, s):
    """Whether executors of a class meet the stage's demand."""
    return (state.stages[s].refuses >> kind) & 1 == 0


@compiled
def is_schedulable(state, s):
    """Whether a decision may choose the stage now."""
    stage, clock = state.stages[s], state.clock[0]
    if (
        stage.saturated == 1
        or stage.unsaturated_parents > 0
        or stage.chosen == clock.scheduling_round
        or (stage.refuses >> clock.offered_kind) & 1 == 1
        or (clock.conserving == 1 and stage.unfinished_parents > 0)
    ):
        return False
    return stage.gang == 0 or (
        clock.gang_round == 1 and stage.unfinished_parents == 0 and stage.tasks <= clock.on_offer
    )


@compiled
def job_of_source(state, source):
    """The job that a source's executors belong to, or -1 for the common pool."""
    clock = state.clock[0]
    if source < clock.stages:
        return np.int64(state.stages[source].job)
    job = np.int64(source) - clock.stages
    return job if job < clock.jobs else np.int64(-1)


@compiled
def pool_of_job(state, j):
    return np.int64(state.clock[0].stages) + j


@compiled
def common_pool(state):
    return np.int64(state.clock[0].stages) + state.clock[0].jobs


@compiled
def source_of_executor(state, e):
    executor = state.executors[e]
    if executor.stage >= 0:
        return np.int64(executor.stage)
    if executor.job >= 0:
        return pool_of_job(state, executor.job)
    return common_pool(state)


@compiled
def _update_saturation(state, table, s):
    """Keep the counters of schedulable stages right after launched, committed or moving changed."""
    stage = state.stages[s]
    saturated = 1 if stage.launched + stage.committed + stage.moving >= stage.tasks else 0
    if saturated == stage.saturated:
        return
    stage.saturated = saturated
    clock, job = state.clock[0], state.jobs[stage.job]
    change = -1 if saturated == 1 else 1
    job.unsaturated += change
    if clock.kinds > 0:  # it, or a child of it, may want executors that idle
        clock.news = 1
    if stage.unsaturated_parents == 0:
        job.schedulable += change
        clock.schedulable += change
    template = table.stages[stage.template]
    for c in range(template.first_child, template.first_child + template.children):
        child = state.stages[job.first_stage + table.children[c]]
        before = child.unsaturated_parents == 0 and child.saturated == 0
        child.unsaturated_parents += change
        after = child.unsaturated_parents == 0 and child.saturated == 0
        if before and not after:
            job.schedulable -= 1
            clock.schedulable -= 1
        elif after and not before:
            job.schedulable += 1
            clock.schedulable += 1


@compiled
def _count_jobs(state, table, j, change):
    """A job arrives or leaves: bring the integrals over the jobs up to date first."""
    clock, job = state.clock[0], state.jobs[j]
    clock.job_seconds = job_seconds(state)
    clock.weighted_s = _weighted_s(state)
    clock.squares_s2 = _squares_s2(state)
    clock.changed_s = clock.now
    clock.active += change
    clock.weight += change * table.templates[job.template].weight
    clock.arrivals_s += change * job.arrival_s
    if clock.active == 0:  # leave no rounding errors behind
        clock.weight = 0.0
        clock.arrivals_s = 0.0


@compiled
def job_seconds(state):
    """Integral of the number of jobs in the system from 0 to now: the sum of times spent."""
    clock = state.clock[0]
    return clock.job_seconds + clock.active * (clock.now - clock.changed_s)


@compiled
def _weighted_s(state):
    """Likewise of their weight: the sum of weighted times spent."""
    clock = state.clock[0]
    return clock.weighted_s + clock.weight * (clock.now - clock.changed_s)


@compiled
def _squares_s2(state):
    """Likewise of twice their age: the sum of squared times spent."""
    clock = state.clock[0]
    # The integral of 2 (t - a) from t0 to t1 is (t1 - t0) (t1 + t0 - 2 a).
    ages = clock.active * (clock.now + clock.changed_s) - 2.0 * clock.arrivals_s
    return clock.squares_s2 + ages * (clock.now - clock.changed_s)


@compiled
def cost(state, objective):
    """What the episode has cost so far; `objective` is a value of `objectives.OBJECTIVES`."""
    if objective == MEAN:
        return job_seconds(state)
    if objective == TAIL:
        return _squares_s2(state)
    if objective == MAKESPAN:
        clock = state.clock[0]
        # Executors may still be on their way when the last job has ended.
        until = clock.changed_s if clock.finished == clock.jobs else clock.now
        return until - state.jobs[0].arrival_s
    return _weighted_s(state)


# ---------------------------------------------------------------- places of an executor
@compiled
def _leave_stage(state, e):
    executor = state.executors[e]
    if executor.stage >= 0:
        state.stages[executor.stage].executors -= 1
    executor.stage = -1


@compiled
def _leave_job(state, e):
    _leave_stage(state, e)
    executor = state.executors[e]
    if executor.job >= 0:
        job = state.jobs[executor.job]
        job.executors -= 1
        job.supply -= 1
    executor.job = -1


@compiled
def _enter_pool(state, e, pool):
    """Idle in a job's free pool or in the common pool. The next task there is a fresh one."""
    clock = state.clock[0]
    if pool == common_pool(state):
        _leave_job(state, e)
        clock.free += 1
        if clock.waiting > 0:
            clock.news = 1
    else:
        _leave_stage(state, e)
    executor, source = state.executors[e], state.sources[pool]
    executor.next = source.pool
    executor.previous = -1
    if source.pool >= 0:
        state.executors[source.pool].previous = e
    source.pool = e
    executor.pool = pool
    clock.idle += 1


@compiled
def _leave_pool(state, e):
    executor = state.executors[e]
    if executor.pool < 0:
        return
    if executor.next >= 0:
        state.executors[executor.next].previous = executor.previous
    if executor.previous >= 0:
        state.executors[executor.previous].next = executor.next
    else:
        state.sources[executor.pool].pool = executor.next
    clock = state.clock[0]
    if executor.pool == common_pool(state):
        clock.free -= 1
    executor.pool = -1
    clock.idle -= 1


@compiled
def _launch(state, table, e, s):
    """Start the stage's next task on an executor bound to its job; returns when it will end."""
    clock, executor, stage = state.clock[0], state.executors[e], state.stages[s]
    job = state.jobs[stage.job]
    executor.wave = wave_of(executor.stage, s)
    duration_s = task_duration_s(
        table, stage.template, stage.key, stage.launched, job.executors, executor.wave
    )
    if executor.stage != s:
        if executor.stage >= 0:
            state.stages[executor.stage].executors -= 1
        stage.executors += 1
        executor.stage = s
    executor.started_s = clock.now
    executor.task = stage.launched
    if math.isnan(job.first_start_s):
        job.first_start_s = clock.now
    stage.launched += 1
    if stage.launched == stage.tasks:
        job.exhausted_stages += 1
    _update_saturation(state, table, s)
    return clock.now + duration_s


@compiled
def _start(state, table, e, s):
    state.executors[e].asked = state.clock[0].arrived
    ends_at = _launch(state, table, e, s)
    push(state, ends_at, 2 * e + TASK_DONE)


@compiled
def _move(state, table, e, s):
    """Send an executor to another job's stage; it is bound to that job on arrival."""
    _leave_job(state, e)
    stage = state.stages[s]
    state.executors[e].target = s
    stage.moving += 1
    state.jobs[stage.job].supply += 1
    _update_saturation(state, table, s)
    clock = state.clock[0]
    push(state, clock.now + clock.move_delay_s, 2 * e + EXECUTOR_ARRIVAL)


# ---------------------------------------------------------------- gangs
@compiled
def _gang_is_ready(state):
    clock = state.clock[0]
    clock.waiting += 1
    clock.news = 1


@compiled
def _start_gang(state, table, s):
    """Start all tasks of a gang at once, on executors on offer in the common pool."""
    clock, stage = state.clock[0], state.stages[s]
    job = state.jobs[stage.job]
    duration_s = task_duration_s(table, stage.template, stage.key, 0, job.executors, FRESH)
    if clock.kill_at_limit == 1 and duration_s > table.stages[stage.template].limit_s:  # or NaN
        duration_s = table.stages[stage.template].limit_s
        job.killed = 1
    lead = np.int64(-1)
    for task in range(stage.tasks - 1, -1, -1):
        clock.in_hand -= 1
        e = np.int64(state.hand[clock.in_hand])
        _leave_pool(state, e)
        executor = state.executors[e]
        executor.job = stage.job
        executor.stage = s
        executor.task = task
        executor.wave = FRESH
        executor.started_s = clock.now
        executor.next = lead
        lead = e
    stage.lead = lead
    stage.executors = stage.tasks
    stage.launched = stage.tasks
    job.executors += stage.tasks
    job.supply += stage.tasks
    job.exhausted_stages += 1
    if math.isnan(job.first_start_s):
        job.first_start_s = clock.now
    clock.on_offer -= stage.tasks
    clock.waiting -= 1
    _update_saturation(state, table, s)
    push(state, clock.now + duration_s, 2 * lead + TASK_DONE)


@compiled
def _end_gang(state, table, s):
    """All tasks of a gang end; its executors are nobody's at once."""
    clock, stage = state.clock[0], state.stages[s]
    j = np.int64(stage.job)
    e = np.int64(stage.lead)
    while e >= 0:
        following = np.int64(state.executors[e].next)
        _book_task(state, e)
        _enter_pool(state, e, common_pool(state))
        e = following
    clock.news = 1
    if _finish_stage(state, table, s):
        _offer_pool(state, pool_of_job(state, j))
    else:
        _release(state, j)
    if state.jobs[j].finished_stages == state.jobs[j].stages:
        _finish_job(state, table, j)


@compiled
def _has_no_use(state, j, kind):
    """Whether a job can use no executor of a class before another of its stages has started.

    All of its executors idle then, and what it could go on with is a gang or asks for another
    class.
    """
    job = state.jobs[j]
    for s in range(job.first_stage, job.first_stage + job.stages):
        stage = state.stages[s]
        if stage.launched > stage.finished or stage.moving > 0:
            return False
        if (
            stage.gang == 0
            and stage.unfinished_parents == 0
            and stage.launched < stage.tasks
            and serves(state, kind, s)
        ):
            return False
    return True


@compiled
def _may_serve(state, j, kind):
    """Whether the job has tasks left to start that executors of a class may run."""
    job = state.jobs[j]
    if state.clock[0].kinds == 0:
        return job.exhausted_stages < job.stages
    for s in range(job.first_stage, job.first_stage + job.stages):
        if state.stages[s].launched < state.stages[s].tasks and serves(state, kind, s):
            return True
    return False


@compiled
def _release(state, j):
    """Executors that idle in the job's pool without use for it go to the common pool."""
    clock = state.clock[0]
    e = np.int64(state.sources[pool_of_job(state, j)].pool)
    if clock.waiting == 0 or e < 0:
        return
    # Without classes the answer is the same for all.
    if clock.kinds == 0 and not _has_no_use(state, j, 0):
        return
    while e >= 0:
        following = np.int64(state.executors[e].next)
        kind = state.executors[e].kind
        if clock.kinds == 0 or not _may_serve(state, j, kind) or _has_no_use(state, j, kind):
            _leave_pool(state, e)
            _enter_pool(state, e, common_pool(state))
        e = following


# ---------------------------------------------------------------- commitments: promised executors
@compiled
def _commit(state, table, source, s, count):
    """Promise `count` executors of a source to stage `s` (-1: let them idle), in order."""
    clock = state.clock[0]
    c = clock.free_commitment
    commitment = state.commitments[c]
    clock.free_commitment = commitment.next
    commitment.stage = s
    commitment.count = count
    commitment.kind = clock.offered_kind
    commitment.next = -1
    queue = state.sources[source]
    if queue.first < 0:
        queue.first = c
    else:
        state.commitments[queue.last].next = c
    queue.last = c
    if s >= 0:
        stage = state.stages[s]
        stage.committed += count
        if job_of_source(state, source) != stage.job:
            state.jobs[stage.job].supply += count
        _update_saturation(state, table, s)


@compiled
def _is_promised(state, source, kind):
    """Whether a source has promised executors of a class."""
    c = state.sources[source].first
    while c >= 0 and state.commitments[c].kind != kind:
        c = state.commitments[c].next
    return c >= 0


@compiled
def _take_commitment(state, source, kind):
    """Take one executor's promise, the first to its class; its stage, or -1.

    Saturation is not updated.
    """
    clock, queue = state.clock[0], state.sources[source]
    before, c = -1, queue.first
    while state.commitments[c].kind != kind:
        before, c = c, state.commitments[c].next
    commitment = state.commitments[c]
    s = np.int64(commitment.stage)
    commitment.count -= 1
    if commitment.count == 0:
        if before < 0:
            queue.first = commitment.next
        else:
            state.commitments[before].next = commitment.next
            if queue.last == c:
                queue.last = before
        commitment.next = clock.free_commitment
        clock.free_commitment = c
    if s >= 0:
        stage = state.stages[s]
        stage.committed -= 1
        if job_of_source(state, source) != stage.job:
            state.jobs[stage.job].supply -= 1
    return s


@compiled
def _use_elsewhere(state, table, e):
    """The promised stage needs nobody: own job's first runnable stage, else any, else idle."""
    clock = state.clock[0]
    clock.offered_kind = state.executors[e].kind
    j = np.int64(state.executors[e].job)
    if j >= 0 and state.jobs[j].unsaturated > 0:
        job = state.jobs[j]
        for s in range(job.first_stage, job.first_stage + job.stages):
            stage = state.stages[s]
            if (
                stage.unfinished_parents == 0
                and stage.saturated == 0
                and stage.gang == 0
                and serves(state, clock.offered_kind, s)
            ):
                _start(state, table, e, s)
                return
    for a in range(clock.active):
        i = np.int64(state.active[a])
        job = state.jobs[i]
        if job.schedulable == 0:
            continue
        for s in range(job.first_stage, job.first_stage + job.stages):
            if is_schedulable(state, s):
                _move(state, table, e, s)  # also within its own job, as Decima's simulator has it
                return
    keeps = j >= 0 and clock.conserving == 0
    _enter_pool(state, e, pool_of_job(state, j) if keeps else common_pool(state))


@compiled
def _fulfil(state, table):
    """Send the executors in hand where the round's commitments say."""
    clock = state.clock[0]
    source = source_of_executor(state, state.hand[clock.in_hand - 1])
    while clock.in_hand > 0:
        e = np.int64(state.hand[clock.in_hand - 1])
        kind = state.executors[e].kind
        if not _is_promised(state, source, kind):
            break
        s = _take_commitment(state, source, kind)
        clock.in_hand -= 1
        j = np.int64(state.executors[e].job)
        own = np.int64(state.executors[e].stage)
        if s < 0 and own >= 0 and state.stages[own].launched < state.stages[own].tasks:
            _start(state, table, e, own)  # it was offered once more, and stays
            continue
        _leave_pool(state, e)
        if s < 0:
            if j >= 0 and clock.conserving == 0 and _may_serve(state, j, kind):
                _enter_pool(state, e, pool_of_job(state, j))
            else:
                _enter_pool(state, e, common_pool(state))
            continue
        stage = state.stages[s]
        if stage.launched == stage.tasks:
            _update_saturation(state, table, s)
            _use_elsewhere(state, table, e)
        elif j != stage.job:
            _move(state, table, e, s)
        elif stage.unfinished_parents == 0:
            _start(state, table, e, s)
        else:
            _enter_pool(state, e, pool_of_job(state, j))
            _update_saturation(state, table, s)


# ---------------------------------------------------------------- events
@compiled
def _offer(state, pool, kind):
    """Open a scheduling round for the executors of a class in a pool; of all if -1."""
    clock = state.clock[0]
    n = 0
    e = np.int64(state.sources[pool].pool)
    while e >= 0:
        if kind < 0 or state.executors[e].kind == kind:
            state.hand[n] = e
            n += 1
        e = np.int64(state.executors[e].next)
    clock.in_hand = n
    clock.on_offer = n
    clock.source_job = job_of_source(state, pool)


@compiled
def _offer_pool(state, pool):
    """Open a scheduling round for everybody in a pool, or one for each executor class."""
    clock = state.clock[0]
    if clock.kinds == 0:
        _offer(state, pool, -1)
    else:
        clock.next_source = pool
        clock.next_kind = 0
        offer_next_kind(state)


@compiled
def offer_next_kind(state):
    """Open a round for the next class of the source that has a use; else nobody is on offer."""
    clock = state.clock[0]
    pool = np.int64(clock.next_source)
    while clock.next_kind < clock.kinds:
        clock.offered_kind = clock.next_kind
        clock.next_kind += 1
        _offer(state, pool, clock.offered_kind)
        if clock.on_offer > 0 and _something_is_schedulable(state):
            return
    clock.in_hand = 0
    clock.on_offer = 0
    clock.next_kind = -1
    j = job_of_source(state, pool)
    if j >= 0:
        _release(state, j)
    _close_gang_round(state)


@compiled
def _close_gang_round(state):
    clock = state.clock[0]
    if clock.gang_round == 1 and clock.next_kind < 0:
        clock.gang_round = 0
        clock.news = 0  # whoever idles again has just been offered


@compiled
def _finish_job(state, table, j):
    clock, job = state.clock[0], state.jobs[j]
    job.finish_s = clock.now
    clock.finished += 1
    for k in range(job.stages + 1):  # drop what its executors were promised to
        source = job.first_stage + k if k < job.stages else pool_of_job(state, j)
        while state.sources[source].first >= 0:
            kind = state.commitments[state.sources[source].first].kind
            s = _take_commitment(state, source, kind)
            if s >= 0:
                _update_saturation(state, table, s)
    if job.executors > 0:
        for e in range(clock.executors):
            executor = state.executors[e]
            if executor.job == j:
                if executor.pool >= 0:
                    _leave_pool(state, e)
                    _enter_pool(state, e, common_pool(state))
                else:
                    _leave_job(state, e)
    a = 0
    while state.active[a] != j:
        a += 1
    for b in range(a, clock.active - 1):
        state.active[b] = state.active[b + 1]
    _count_jobs(state, table, j, -1)
    if clock.source_job == j:
        clock.source_job = -1
    if clock.next_kind >= 0 and clock.next_source == pool_of_job(state, j):
        clock.next_kind = -1


@compiled
def _book_task(state, e):
    """Book the end of the executor's task."""
    clock = state.clock[0]
    executor = state.executors[e]
    clock.busy_s += clock.now - executor.started_s
    stage = state.stages[executor.stage]
    stage.finished += 1
    if state.timeline.shape[0] > 0:
        line = state.timeline[clock.tasks_logged]
        clock.tasks_logged += 1
        line.start_s = executor.started_s
        line.finish_s = clock.now
        line.executor = e
        line.job = stage.job
        line.stage = executor.stage - state.jobs[stage.job].first_stage
        line.task = executor.task


@compiled
def _finish_stage(state, table, s):
    """The stage is done; returns whether another one, not a gang, is runnable by that."""
    stage = state.stages[s]
    job = state.jobs[stage.job]
    job.finished_stages += 1
    frontier_changed = False
    template = table.stages[stage.template]
    for c in range(template.first_child, template.first_child + template.children):
        child = state.stages[job.first_stage + table.children[c]]
        child.unfinished_parents -= 1
        if child.unfinished_parents == 0 and child.launched < child.tasks:
            if child.gang == 1:
                _gang_is_ready(state)
            else:
                frontier_changed = True
    return frontier_changed


@compiled
def _executors_of_kind(state, s, kind):
    """Executors of a class that run on a stage, or have just finished there."""
    count = 0
    for e in range(state.clock[0].executors):
        if state.executors[e].stage == s and state.executors[e].kind == kind:
            count += 1
    return count


@compiled
def _offer_one(state, e):
    """Open a round for an executor that has just ended a task."""
    clock = state.clock[0]
    executor = state.executors[e]
    state.hand[0] = e
    clock.in_hand = 1
    clock.source_job = executor.job
    clock.offered_kind = executor.kind
    clock.on_offer = 1


@compiled
def _stage_has_no_more_tasks(state, table, e):
    """The executor's stage has nothing left to launch: who gets the executor?"""
    clock = state.clock[0]
    s = np.int64(state.executors[e].stage)
    stage = state.stages[s]
    j = np.int64(stage.job)
    job = state.jobs[j]
    frontier_changed = stage.finished == stage.tasks and _finish_stage(state, table, s)
    if clock.conserving == 1:
        if frontier_changed:
            clock.news = 1  # whoever idles may have work now
        _offer_one(state, e)
        if job.finished_stages == job.stages:
            _finish_job(state, table, j)
        return
    state.hand[0] = e
    clock.in_hand = 1
    kind = state.executors[e].kind
    if _is_promised(state, s, kind):
        _fulfil(state, table)
        if frontier_changed:
            _offer_pool(state, pool_of_job(state, j))
    elif frontier_changed:
        _enter_pool(state, e, pool_of_job(state, j))
        _offer_pool(state, pool_of_job(state, j))
    elif clock.waiting > 0 and _has_no_use(state, j, kind):
        clock.in_hand = 0
        _enter_pool(state, e, common_pool(state))
    else:
        clock.source_job = j
        clock.offered_kind = kind
        clock.on_offer = stage.executors  # decided ahead for those still running there
        if clock.kinds > 0:
            clock.on_offer = _executors_of_kind(state, s, kind)
    if clock.on_offer == 0:
        _release(state, j)
    if job.finished_stages == job.stages:
        _finish_job(state, table, j)


@compiled
def _executor_arrives(state, table, e):
    executor = state.executors[e]
    s = np.int64(executor.target)
    executor.target = -1
    stage = state.stages[s]
    j = np.int64(stage.job)
    job = state.jobs[j]
    stage.moving -= 1
    if job.finished_stages == job.stages:
        job.supply -= 1
        _update_saturation(state, table, s)
        _use_elsewhere(state, table, e)
        return
    executor.job = j  # its supply already counts the executor
    job.executors += 1
    if stage.launched == stage.tasks:
        _update_saturation(state, table, s)
        _use_elsewhere(state, table, e)
        _release(state, j)
    elif stage.unfinished_parents == 0:
        _start(state, table, e, s)
    else:
        _enter_pool(state, e, pool_of_job(state, j))
        _update_saturation(state, table, s)


@compiled
def _jobs_arrive(state, table):
    """Jobs of the same instant join together; then the common pool is offered."""
    clock = state.clock[0]
    while clock.arrived < clock.jobs and state.jobs[clock.arrived].arrival_s <= clock.now:
        j = clock.arrived
        job = state.jobs[j]
        state.active[clock.active] = j
        _count_jobs(state, table, j, 1)
        clock.arrived += 1
        clock.events += 1
        job.unsaturated = job.stages
        for s in range(job.first_stage, job.first_stage + job.stages):
            if state.stages[s].unsaturated_parents == 0:
                job.schedulable += 1
                if state.stages[s].gang == 1:
                    _gang_is_ready(state)
        clock.schedulable += job.schedulable
    if clock.waiting > 0:
        clock.news = 1
    else:
        _offer_pool(state, common_pool(state))


@compiled
def _next_event(state, table):
    """Process one event."""
    clock, heap = state.clock[0], state.heap
    if clock.arrived < clock.jobs:
        arrival_s = state.jobs[clock.arrived].arrival_s
        if clock.heap_size == 0 or arrival_s <= heap[0].time:
            clock.now = arrival_s
            _jobs_arrive(state, table)
            return
    clock.now = heap[0].time
    clock.events += 1
    if heap[0].what & 1 == EXECUTOR_ARRIVAL:
        e = heap[0].what >> 1
        _pop(state)
        _executor_arrives(state, table, e)
        return
    e = heap[0].what >> 1
    s = np.int64(state.executors[e].stage)
    if state.stages[s].gang == 1:
        _pop(state)
        _end_gang(state, table, s)
        return
    _book_task(state, e)
    if state.stages[s].launched < state.stages[s].tasks:
        if clock.reconsider == 1 and state.executors[e].asked < clock.arrived:
            _pop(state)
            _offer_one(state, e)  # jobs have come since it got its stage: does it stay?
            return
        # By far the most frequent event: the executor stays and starts the stage's next task.
        ends_at = _launch(state, table, e, s)
        clock.sequence += 1
        _sift_down(heap, np.int64(clock.heap_size), ends_at, clock.sequence, 2 * e + TASK_DONE)
    else:
        _pop(state)
        _stage_has_no_more_tasks(state, table, e)


# ---------------------------------------------------------------- what a driver calls
@compiled
def load_job(state, table, j, first_stage, template_index, arrival_s, key):
    """Put a job that is to arrive into places `j` and from `first_stage` on."""
    template = table.templates[template_index]
    job = state.jobs[j]
    job.arrival_s = arrival_s
    job.first_start_s = NAN
    job.finish_s = NAN
    job.key = key
    job.template = template_index
    job.first_stage = first_stage
    job.stages = template.stages
    job.finished_stages = 0
    job.exhausted_stages = 0
    job.unsaturated = 0
    job.schedulable = 0
    job.executors = 0
    job.supply = 0
    job.killed = 0
    for k in range(template.stages):
        row = template.first_stage + k
        given = table.stages[row]
        stage = state.stages[first_stage + k]
        stage.key = derive(job.key, given.position)
        stage.estimate_s = given.estimate_s
        stage.job = j
        stage.template = row
        stage.tasks = given.tasks
        stage.launched = 0
        stage.finished = 0
        stage.committed = 0
        stage.moving = 0
        stage.executors = 0
        stage.unfinished_parents = given.parents
        stage.unsaturated_parents = given.parents
        stage.saturated = 0
        stage.chosen = 0
        stage.gang = given.gang
        stage.lead = -1
        stage.refuses = 0


@compiled
def load(state, table, templates, arrivals_s, executors, move_delay_s, key):
    """Put an episode into the state: job r is template `templates[r]`, arriving at `arrivals_s[r]`.

    Arrivals are in order; `key` is the stream of the task durations.
    """
    clock = state.clock[0]
    clock.now = 0.0
    clock.job_seconds = 0.0
    clock.weighted_s = 0.0
    clock.squares_s2 = 0.0
    clock.changed_s = 0.0
    clock.weight = 0.0
    clock.arrivals_s = 0.0
    clock.busy_s = 0.0
    clock.move_delay_s = move_delay_s
    clock.events = 0
    clock.decisions = 0
    clock.sequence = 0
    clock.heap_size = 0
    clock.jobs = len(templates)
    clock.executors = executors
    clock.arrived = 0
    clock.active = 0
    clock.finished = 0
    clock.scheduling_round = 1
    clock.source_job = -1
    clock.on_offer = 0
    clock.in_hand = 0
    clock.idle = 0
    clock.free = 0
    clock.schedulable = 0
    clock.waiting = 0
    clock.news = 0
    clock.gang_round = 0
    clock.kill_at_limit = 0
    clock.reconsider = 0
    clock.conserving = 0
    clock.kinds = 0
    clock.offered_kind = 0
    clock.next_kind = -1
    clock.next_source = -1
    clock.tasks_logged = 0
    s = 0
    for j in range(len(templates)):
        load_job(state, table, j, s, templates[j], arrivals_s[j], derive(key, j))
        s += state.jobs[j].stages
    clock.stages = s
    for k in range(s + clock.jobs + 1):
        source = state.sources[k]
        source.pool = -1
        source.first = -1
        source.last = -1
    for c in range(executors + 1):
        state.commitments[c].next = c + 1 if c < executors else -1
    clock.free_commitment = 0
    for e in range(executors):
        executor = state.executors[e]
        executor.job = -1
        executor.stage = -1
        executor.target = -1
        executor.pool = -1
        executor.kind = 0
        executor.cores = 0.0
        executor.memory = 0.0
        _enter_pool(state, e, common_pool(state))


@compiled
def set_classes(state, table, counts, cores, memory):
    """Give the executors of a state that was just loaded classes; at most MAX_CLASSES.

    counts, cores, memory: of each class, [classes]; the counts sum to the executors. Without limit
    is inf.
    """
    clock = state.clock[0]
    clock.kinds = len(counts)
    # Rounds of the common pool open at the end of an instant, as while a gang waits: whoever idled
    # for want of a stage that asks for its class is offered again when there is one.
    clock.waiting += 1
    e = 0
    for kind in range(len(counts)):
        for _ in range(counts[kind]):
            executor = state.executors[e]
            executor.kind = kind
            executor.cores = cores[kind]
            executor.memory = memory[kind]
            e += 1
    for s in range(clock.stages):
        asked = table.stages[state.stages[s].template]
        for kind in range(len(counts)):
            if cores[kind] < asked.cores or memory[kind] < asked.memory:
                state.stages[s].refuses |= 1 << kind


@compiled
def _something_is_schedulable(state):
    clock = state.clock[0]
    if clock.schedulable == 0:
        return False
    for a in range(clock.active):
        job = state.jobs[state.active[a]]
        if job.schedulable > 0:
            for s in range(job.first_stage, job.first_stage + job.stages):
                if is_schedulable(state, s):
                    return True
    return False


@compiled
def _close_round(state, table):
    """Nobody is on offer any more: keep the round's promises."""
    clock = state.clock[0]
    clock.on_offer = 0
    clock.scheduling_round += 1
    if clock.in_hand > 0:
        _fulfil(state, table)
    if clock.kinds > 0 and clock.source_job >= 0:
        _release(state, np.int64(clock.source_job))
    _close_gang_round(state)


@compiled
def _open_gang_round(state):
    """Offer the common pool to gangs and all others, if any of them can use it."""
    clock = state.clock[0]
    clock.news = 0
    clock.gang_round = 1
    clock.on_offer = clock.free
    if clock.free > 0 and (clock.kinds > 0 or _something_is_schedulable(state)):
        _offer_pool(state, common_pool(state))
        return clock.on_offer > 0
    clock.gang_round = 0
    clock.on_offer = 0
    return False


@compiled
def decline(state, table):
    """Leave the rest of the round's executors where they are."""
    clock = state.clock[0]
    last = state.hand[clock.in_hand - 1]
    source = source_of_executor(state, last)
    if state.executors[last].pool == common_pool(state) and state.sources[source].first < 0:
        # Nothing is promised to anybody, and all on offer stay in the common pool as they are.
        clock.in_hand = 0
        _close_round(state, table)
        return
    _commit(state, table, source, -1, clock.on_offer)
    _close_round(state, table)


@compiled
def amount(state, s, limit):
    """Executors that (stage, limit) gets of those on offer: at least 1; a gang gets all."""
    clock = state.clock[0]
    if state.stages[s].gang == 1:
        return np.int64(state.stages[s].tasks)
    j = np.int64(state.stages[s].job)
    count = limit - state.jobs[j].supply
    if j == clock.source_job:
        count += clock.on_offer
    return max(min(count, demand(state, s), clock.on_offer), 1)


@compiled
def decide(state, table, s, limit):
    """Give executors on offer to schedulable stage `s` until its job has `limit` of them."""
    clock = state.clock[0]
    clock.decisions += 1
    state.stages[s].chosen = clock.scheduling_round
    if state.stages[s].gang == 1:
        _start_gang(state, table, s)
    else:
        count = amount(state, s, limit)
        source = source_of_executor(state, state.hand[clock.in_hand - 1])
        _commit(state, table, source, s, count)
        clock.on_offer -= count
    if clock.on_offer == 0:
        _close_round(state, table)


@compiled
def _instant_is_over(state):
    clock = state.clock[0]
    if clock.arrived < clock.jobs and state.jobs[clock.arrived].arrival_s <= clock.now:
        return False
    return clock.heap_size == 0 or state.heap[0].time > clock.now


@compiled
def advance(state, table):
    """Go on to the next decision. 1: a decision is due; 0: no event is left."""
    clock = state.clock[0]
    while True:
        while clock.on_offer == 0:
            if clock.next_kind >= 0:
                offer_next_kind(state)
            elif clock.news == 1 and _instant_is_over(state):
                if _open_gang_round(state):
                    return 1
            elif clock.heap_size == 0 and clock.arrived == clock.jobs:
                return 0
            else:
                _next_event(state, table)
        if _something_is_schedulable(state):
            return 1
        decline(state, table)
