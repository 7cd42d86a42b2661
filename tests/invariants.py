"""What must hold of a simulated cluster whenever it waits for a decision.

The engine keeps its counters up to date by small steps; `validate` works each of them out from
scratch. `drive` runs an episode through the Python protocol and validates at every decision.
"""

import random
from collections import Counter

import numpy as np

from ganger.simulator import engine
from ganger.simulator import simulate as simulator
from ganger.simulator.observation import Decision
from ganger.simulator.observing import observe
from ganger.simulator.simulate import load_episode, prepare, result_of
from ganger.simulator.state import EXECUTOR_ARRIVAL


class RandomDecisions:
    """Any decision that is allowed, and None now and then."""

    def __init__(self, seed, *, decline=0.0):
        self._random = random.Random(seed)
        self._decline = decline
        self.observations = []

    def decide(self, observation):
        self.observations.append(observation)
        if self._random.random() < self._decline:
            return None
        choices = [(job, stage) for job in observation.jobs for stage in job.schedulable]
        job, stage = self._random.choice(choices)
        limit = self._random.randint(1, observation.executors + 2)
        return Decision(job=job.id, stage=stage.id, limit=limit)


def drive(cluster, workload, scheduler, *, seed=0, kill_at_limit=False, look=None):
    """Run an episode, validating at every decision; returns the result, which may be unfinished.

    look(state, table, observation), if given, is called at every decision.
    """
    episode = prepare(workload)
    table = episode.table
    state = load_episode(episode, cluster, seed=seed, timeline=True, kill_at_limit=kill_at_limit)
    names = simulator._names(workload)
    job_index = {job: j for j, job in enumerate(names.jobs)}
    while engine.advance(state, table):
        validate(state, table)
        observation = observe(state, table, names)
        if look is not None:
            look(state, table, observation)
        decision = scheduler.decide(observation)
        if decision is None:
            engine.decline(state, table)
        else:
            stage = simulator._check(state, names, job_index, decision)
            engine.decide(state, table, stage, decision.limit)
    validate(state, table)
    return result_of(state)


def parents_of(state, table, job):
    """Parents of each stage of a job, as positions in the job."""
    parents = [[] for _ in range(job["stages"])]
    for k in range(job["stages"]):
        given = table.stages[state.stages[job["first_stage"] + k]["template"]]
        for c in range(given["first_child"], given["first_child"] + given["children"]):
            parents[table.children[c]].append(k)
    return parents


def _pools(state, sources):
    """The executors of each pool, walking its list."""
    found = {}
    for source in range(sources):
        before, e = -1, int(state.sources[source]["pool"])
        while e >= 0:
            assert e not in found, f"executor {e} is in two pools, or its list is a ring"
            assert state.executors[e]["previous"] == before
            assert state.executors[e]["pool"] == source
            found[e] = source
            before, e = e, int(state.executors[e]["next"])
    return found


def _commitments(state, sources):
    """[(source, stage, count)] in order, and that no record is lost or used twice."""
    records, found = set(), []
    for source in range(sources):
        c = int(state.sources[source]["first"])
        while c >= 0:
            assert c not in records, f"commitment record {c} is used twice"
            records.add(c)
            record = state.commitments[c]
            assert record["count"] > 0
            found.append((source, int(record["stage"]), int(record["count"])))
            if record["next"] < 0:
                assert state.sources[source]["last"] == c
            c = int(record["next"])
    c = int(state.clock[0]["free_commitment"])
    while c >= 0:
        assert c not in records, f"commitment record {c} is used and free"
        records.add(c)
        c = int(state.commitments[c]["next"])
    assert len(records) == state.clock[0]["executors"] + 1, "commitment records leak"
    return found


def _events(state):
    """What each executor with an event is doing: {executor: kind}."""
    heap, size = state.heap, int(state.clock[0]["heap_size"])
    for i in range(1, size):
        parent = heap[(i - 1) // 2]
        assert (parent["time"], parent["sequence"]) < (heap[i]["time"], heap[i]["sequence"])
        assert heap[i]["time"] >= state.clock[0]["now"]
    events = {int(event["what"]) >> 1: int(event["what"]) & 1 for event in heap[:size]}
    assert len(events) == size, "an executor does two things at a time"
    return events


def _gangs(state):
    """The stage of each executor that runs in a gang; a gang has one event: its lead's."""
    found = {}
    for s in range(int(state.clock[0]["stages"])):
        stage = state.stages[s]
        if not stage["gang"]:
            continue
        assert stage["launched"] in (0, stage["tasks"]), "a gang that is not whole"
        assert stage["finished"] in (0, stage["launched"])
        assert stage["committed"] == stage["moving"] == 0
        if stage["finished"] < stage["launched"]:
            e = int(stage["lead"])
            while e >= 0:
                assert e not in found
                assert state.executors[e]["stage"] == s
                found[e] = s
                e = int(state.executors[e]["next"])
    return found


def validate(state, table):
    """Work out from scratch every counter of a state between two events, and compare."""
    clock = state.clock[0]
    jobs, stages, executors = int(clock["jobs"]), int(clock["stages"]), int(clock["executors"])
    sources = stages + jobs + 1
    common = sources - 1
    pools, events, gangs = _pools(state, sources), _events(state), _gangs(state)
    hand = [int(e) for e in state.hand[: clock["in_hand"]]] if clock["on_offer"] else []
    assert len(set(hand)) == len(hand)

    running, moving, bound, on_stage = Counter(), Counter(), Counter(), Counter()
    for e in range(executors):
        executor = state.executors[e]
        job, stage, target = int(executor["job"]), int(executor["stage"]), int(executor["target"])
        if job >= 0:
            bound[job] += 1
        if stage >= 0:
            on_stage[stage] += 1
            assert state.stages[stage]["job"] == job, "works for a job it is not bound to"
        if e in pools:
            assert e not in events
            assert stage == target == -1
            assert pools[e] == (common if job < 0 else stages + job)
        elif events.get(e) == EXECUTOR_ARRIVAL:
            assert job == stage == -1
            assert target >= 0
            moving[target] += 1
        elif e in gangs:
            assert target == -1
            assert (e in events) == (state.stages[stage]["lead"] == e)
            running[stage] += 1
        elif e in events:
            assert stage >= 0
            assert target == -1
            running[stage] += 1
        else:
            assert e in hand, f"executor {e} is nowhere"
        assert e in pools or executor["pool"] == -1
    assert clock["idle"] == len(pools)
    assert clock["free"] == sum(pool == common for pool in pools.values())

    committed, from_elsewhere = Counter(), Counter()
    for source, stage, count in _commitments(state, sources):
        if stage < 0:
            continue
        committed[stage] += count
        if engine.job_of_source(state, source) != state.stages[stage]["job"]:
            from_elsewhere[int(state.stages[stage]["job"])] += count

    active = [j for j in range(clock["arrived"]) if np.isnan(state.jobs[j]["finish_s"])]
    assert state.active[: clock["active"]].tolist() == active
    assert clock["finished"] == clock["arrived"] - len(active)
    choosable = waiting = 0
    for j in range(jobs):
        job = state.jobs[j]
        mine = state.stages[job["first_stage"] : job["first_stage"] + job["stages"]]
        parents = parents_of(state, table, job)
        saturated = [s["launched"] + s["committed"] + s["moving"] >= s["tasks"] for s in mine]
        ready = 0
        for k, stage in enumerate(mine):
            s = int(job["first_stage"]) + k
            assert stage["job"] == j
            assert 0 <= stage["finished"] <= stage["launched"] <= stage["tasks"]
            assert stage["saturated"] == saturated[k]
            assert stage["committed"] == committed[s]
            assert stage["moving"] == moving[s]
            assert stage["executors"] == on_stage[s]
            assert stage["launched"] - stage["finished"] == running[s]
            unsaturated = sum(not saturated[p] for p in parents[k])
            unfinished = sum(bool(mine[p]["finished"] < mine[p]["tasks"]) for p in parents[k])
            assert stage["unsaturated_parents"] == unsaturated
            assert stage["unfinished_parents"] == unfinished
            assert unfinished == 0 or stage["launched"] == 0, "a task ran before its parents"
            ready += not saturated[k] and unsaturated == 0
            waits = stage["gang"] and not saturated[k] and unfinished == 0
            waiting += bool(waits and j < clock["arrived"])
            offered = clock["on_offer"] if clock["gang_round"] else 0
            if stage["gang"] and j < clock["arrived"]:
                fits = engine.serves(state, clock["offered_kind"], s)
                fits &= bool(stage["tasks"] <= offered)
                assert engine.is_schedulable(state, s) == (waits and fits)
        to_it = sum(moving[int(job["first_stage"]) + k] for k in range(job["stages"]))
        assert job["executors"] == bound[j]
        assert job["supply"] == bound[j] + to_it + from_elsewhere[j]
        assert job["finished_stages"] == sum(bool(s["finished"] == s["tasks"]) for s in mine)
        assert job["exhausted_stages"] == sum(bool(s["launched"] == s["tasks"]) for s in mine)
        has_arrived = j < clock["arrived"]
        assert job["unsaturated"] == (saturated.count(False) if has_arrived else 0)
        assert job["schedulable"] == (ready if has_arrived else 0)
        assert np.isnan(job["finish_s"]) or job["finished_stages"] == job["stages"]
        choosable += int(job["schedulable"])
    assert clock["schedulable"] == choosable
    assert clock["waiting"] == waiting + (clock["kinds"] > 0)
    assert not clock["gang_round"] or (clock["on_offer"] and clock["source_job"] == -1)

    spent = sum(
        min(clock["now"], np.nan_to_num(job["finish_s"], nan=np.inf)) - job["arrival_s"]
        for job in state.jobs[: clock["arrived"]]
    )
    np.testing.assert_allclose(engine.job_seconds(state), spent, atol=1e-9)

    if clock["on_offer"]:
        source = engine.source_of_executor(state, hand[-1])
        assert clock["source_job"] == engine.job_of_source(state, source)
        assert all(engine.source_of_executor(state, e) == source for e in hand)
        if clock["kinds"]:
            assert all(state.executors[e]["kind"] == clock["offered_kind"] for e in hand)
        assert clock["on_offer"] <= executors


def check_timeline(cluster, workload, result):
    """What must hold of any finished run's timeline, whatever the scheduler did."""
    lines = result.timeline
    assert result.finished + result.unfinished == result.submitted == len(workload.jobs)
    ordered = [
        [job.stages[k] for k in simulator.topological_order(job.stages)] for job in workload.jobs
    ]
    done = Counter((int(line["job"]), int(line["stage"])) for line in lines)
    assert done == {
        (j, k): stage.task_count
        for j, stages in enumerate(ordered)
        for k, stage in enumerate(stages)
    }
    assert len({tuple(line)[3:] for line in lines.tolist()}) == len(lines), "a task ran twice"

    first, last = {}, {}
    for line in lines:
        stage = int(line["job"]), int(line["stage"])
        first[stage] = min(first.get(stage, np.inf), line["start_s"])
        last[stage] = max(last.get(stage, -np.inf), line["finish_s"])
        assert line["start_s"] >= workload.jobs[stage[0]].arrival_s
    for j, stages in enumerate(ordered):
        place = {stage.id: k for k, stage in enumerate(stages)}
        for k, stage in enumerate(stages):
            for parent in stage.parents:
                assert first[j, k] >= last[j, place[parent]], "a task ran before its parents"
        assert result.first_start_s[j] == min(first[j, k] for k in range(len(stages)))
        assert result.finish_s[j] == max(last[j, k] for k in range(len(stages)))

    for e in range(cluster.executors):
        finish_s, job = 0.0, -1
        for line in lines[lines["executor"] == e].tolist():  # in the order in which they ended
            gang = ordered[line[3]][line[4]].gang
            delay_s = cluster.move_delay_s if line[3] != job and not gang else 0.0
            assert line[0] >= finish_s + delay_s, "an executor did two things at a time"
            finish_s, job = line[1], -1 if gang else line[3]  # it belongs to nobody after a gang

    if cluster.classes:
        class_of = [given for given in cluster.classes for _ in range(given.count)]
        for line in lines:
            asked = ordered[line["job"]][line["stage"]].demand
            assert class_of[line["executor"]].serves(asked), "an executor too small for its task"

    for j, stages in enumerate(ordered):
        for k, stage in enumerate(stages):
            if stage.gang:
                mine = lines[(lines["job"] == j) & (lines["stage"] == k)]
                assert len(set(mine["start_s"])) == len(set(mine["finish_s"])) == 1
                if mine["finish_s"][0] > mine["start_s"][0]:
                    assert len(set(mine["executor"])) == stage.task_count, "a gang ran short"

    changes = [(line["finish_s"], -1) for line in lines] + [(line["start_s"], 1) for line in lines]
    busy = 0
    for _, change in sorted(changes):
        busy += change
        assert busy <= cluster.executors
    busy_s = 0.0
    for line in lines:  # in the order in which the engine adds them up
        busy_s += line["finish_s"] - line["start_s"]
    assert busy_s == result.busy_s
