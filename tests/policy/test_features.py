"""What the policy sees, against the same numbers worked out naively from an observation."""

import math

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import RandomDecisions, drive

from ganger.policy.features import (
    FUTURE_HORIZONS_S,
    GLOBAL_WIDTH,
    JOB_WIDTH,
    POLICY_GLOBALS,
    STAGE_WIDTH,
    new_rows,
    room_needed,
    write_features,
)
from ganger.simulator import engine
from ganger.simulator.simulate import Cluster, load_episode, prepare
from ganger.workload import Job, PerTask, Pool, Stage, Workload, work_s


def features(state, table, *, every_stage, future=False):
    """The rows of one decision, and that no more were written than announced."""
    stages, jobs, edges = room_needed(state, table, every_stage)
    rows = new_rows(1, int(stages), int(jobs), int(edges) + 1)
    rows.globals[:] = 0
    scratch = np.zeros(len(state.stages)), np.zeros(len(state.stages))
    write_features(
        state, table, rows, np.int64(0), every_stage, np.bool_(future), scratch[0], scratch[1]
    )
    assert rows.stage_pointer[1] <= stages
    assert rows.job_pointer[1] == jobs
    assert rows.edge_pointer[1] <= edges
    return rows


def naive_rows(o, every_stage):
    """Stage rows, job rows, globals, and edges of an observation, as features.py describes them."""
    log1p = math.log1p
    cluster = o.executors
    stage_rows, job_rows, edges, works = [], [], [], []
    for job in o.jobs:
        children = {s.id: [c for c in job.stages if s.id in c.parents] for s in job.stages}
        alive = {s.id: s.finished < s.tasks for s in job.stages}
        path, work_path = {}, {}
        for s in reversed(job.stages):
            own_s, own_work = (s.estimated_task_s, s.remaining_work_s) if alive[s.id] else (0, 0)
            path[s.id] = own_s + max((path[c.id] for c in children[s.id]), default=0)
            work_path[s.id] = own_work + max((work_path[c.id] for c in children[s.id]), default=0)
        longest, heaviest = max(path.values()), max(work_path.values())
        is_source = job.id == o.source_job
        own = job.supply - (o.on_offer if is_source else 0)
        index = {}
        for s in job.stages:
            if not (s.schedulable or (every_stage and alive[s.id])):
                continue
            index[s.id] = len(stage_rows)
            demand = max(s.demand, 0)
            finished = {p.id: p.finished == p.tasks for p in job.stages}
            stage_rows.append(
                [
                    log1p(demand) / 5,
                    log1p(s.estimated_task_s) / 2,
                    log1p(s.estimated_task_s * demand) / 5,
                    all(finished[p] for p in s.parents),
                    s.executors / cluster,
                    len(children[s.id]) / 3,
                    is_source and s.id == o.source_stage,
                    min(s.demand, o.on_offer) / cluster,
                    s.demand <= o.on_offer,
                    (s.committed + s.moving) / cluster,
                    log1p(path[s.id]) / 3,
                    path[s.id] / max(longest, 1e-9),
                    log1p(work_path[s.id]) / 5,
                    work_path[s.id] / max(heaviest, 1e-9),
                ]
            )
        edges += [
            (index[s.id], index[c.id])
            for s in job.stages
            if s.id in index and every_stage
            for c in children[s.id]
        ]
        unfinished = [s for s in job.stages if alive[s.id]]
        work = sum(s.remaining_work_s for s in unfinished)
        works.append(work)
        job_rows.append(
            [
                own / cluster,
                is_source,
                o.on_offer / cluster,
                log1p(sum(s.tasks - s.launched for s in unfinished)) / 5,
                sum(s.launched - s.finished for s in unfinished) / cluster,
                sum(s.demand > 0 for s in job.stages) / 10,
                len(job.schedulable) / 5,
                log1p(sum(s.demand for s in job.schedulable)) / 5,
                job.executors / cluster,
                len(unfinished) / 10,
                log1p(sum(s.estimated_task_s for s in unfinished) / max(len(unfinished), 1)) / 2,
                job.supply / cluster,
                log1p(work) / 5,
                log1p(longest) / 3,
                log1p(heaviest) / 5,
                log1p(work / (max(own, 0) + 1)) / 4,
                log1p(work / max(longest, 1e-3)) / 4,
                None,
                None,
                None,
                log1p(o.time_s - job.arrival_s) / 5,
                log1p(max(own, 0)) / 4,
            ]
        )
    total = sum(works)
    single = np.array(works, np.float32)
    for row, work in zip(job_rows, single, strict=True):
        row[17] = (single < work).sum() / 5
        row[18] = single[single < work].sum() / max(total, 1e-9)
        row[19] = work / max(total, 1e-9)
    whole = [
        len(o.jobs) / 10,
        sum(any(s.demand > 0 for s in job.stages) for job in o.jobs) / 10,
        o.on_offer / cluster,
        log1p(total) / 5,
        total / cluster / 60,
        o.idle / cluster,
        log1p(len(o.jobs)) / 2,
        o.source_job is not None,
        log1p(cluster) / 4,
        log1p(o.on_offer) / 4,
    ]
    return (
        np.array(stage_rows, float).reshape(-1, STAGE_WIDTH),
        np.array(job_rows, float).reshape(-1, JOB_WIDTH),
        np.array(whole, float),
        edges,
    )


@settings(max_examples=20)
@given(st.data(), st.integers(1, 9), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_features_are_what_their_descriptions_say(data, executors, seed, every_stage, gangs):
    drawn = strategies.mixtures(executors) if gangs else strategies.workloads()
    workload = data.draw(drawn)

    def look(state, table, observation):
        rows = features(state, table, every_stage=every_stage)
        stages, jobs, whole, edges = naive_rows(observation, every_stage)
        count = rows.stage_pointer[1]
        tight = {"rtol": 1e-5, "atol": 1e-6}
        np.testing.assert_allclose(rows.stages[:count], stages, **tight)
        np.testing.assert_allclose(rows.jobs[:, :JOB_WIDTH], jobs, **tight)
        np.testing.assert_allclose(rows.globals[0, :POLICY_GLOBALS], whole, **tight)
        assert sorted(map(tuple, rows.edges[: rows.edge_pointer[1]].tolist())) == sorted(edges)
        listed = [s for job in observation.jobs for s in job.stages]
        assert rows.stage_choice[:count].sum() == sum(s.schedulable for s in listed)

    drive(Cluster(executors=executors), workload, RandomDecisions(seed, decline=0.1), look=look)


@settings(max_examples=20)
@given(strategies.workloads(max_size=9), st.integers(1, 9), st.integers(0, 2**32))
def test_the_critic_sees_the_arrivals_to_come(workload, executors, seed):
    def look(state, table, observation):
        clock = state.clock[0]
        to_come = workload.jobs[clock["arrived"] :]
        waits = [job.arrival_s - clock["now"] for job in to_come]
        works = [work_s(job.stages) for job in to_come]
        expected = [len(to_come) / 50, math.log1p(len(to_come)) / 4]
        for what in (lambda _: 1.0, lambda w: w / 1000, lambda w: math.log1p(w) / 5):
            expected += [
                sum(what(w) * math.exp(-s / horizon) for s, w in zip(waits, works, strict=True))
                / {200: 3, 600: 10}.get(horizon, 1)
                for horizon in FUTURE_HORIZONS_S
            ]
        for k in range(4):
            near = k < len(to_come)
            expected += [
                math.exp(-waits[k] / 40) if near else 0.0,
                math.log1p(works[k]) / 5 * math.exp(-waits[k] / 100) if near else 0.0,
            ]
        expected.append(0.0)  # what the actor writes
        rows = features(state, table, every_stage=False, future=True)
        seen = rows.globals[0, POLICY_GLOBALS:]
        assert len(expected) == GLOBAL_WIDTH - POLICY_GLOBALS
        np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-6)

    drive(Cluster(executors=executors), workload, RandomDecisions(seed), look=look)


def test_the_critic_sees_the_weights_of_the_jobs_to_come():
    stages = (Stage(id="x", task_count=1, durations=Pool((5.0,))),)
    jobs = (Job(id=str(i), arrival_s=7.0 * i, stages=stages) for i in range(3))
    episode = prepare(Workload(tuple(jobs)))
    seen = []
    for weight in (1.0, 2.5):
        episode.table.templates["weight"] = weight
        state = load_episode(episode, Cluster(executors=1), seed=0)
        assert engine.advance(state, episode.table) == 1
        seen.append(features(state, episode.table, every_stage=False, future=True).globals[0])
    weighs = np.zeros(GLOBAL_WIDTH, bool)
    horizons = len(FUTURE_HORIZONS_S)
    weighs[POLICY_GLOBALS + 2 : POLICY_GLOBALS + 2 + horizons] = True
    np.testing.assert_allclose(seen[1][weighs], 2.5 * seen[0][weighs], rtol=1e-6)
    np.testing.assert_array_equal(seen[1][~weighs], seen[0][~weighs])


@settings(max_examples=20)
@given(st.data(), st.integers(1, 9), st.integers(0, 2**32))
def test_features_of_states_with_gangs_are_finite_the_critics_too(data, executors, seed):
    def look(state, table, observation):
        rows = features(state, table, every_stage=False, future=True)
        count = rows.stage_pointer[1]
        for part in (rows.stages[:count], rows.jobs, rows.globals):
            assert np.isfinite(part).all()
        stages = rows.stages[:count]
        for stage, demand in zip(rows.stage_index[:count], rows.stage_demand, strict=False):
            if state.stages[stage]["gang"]:
                assert demand == state.stages[stage]["tasks"] <= rows.on_offer[0]
        assert stages[:, 8].tolist() == [
            float(demand <= rows.on_offer[0]) for demand in rows.stage_demand[:count]
        ]

    workload = data.draw(strategies.mixtures(executors))
    drive(Cluster(executors=executors), workload, RandomDecisions(seed), look=look)


NASTY = {
    "endless tasks": Pool((1e15,)),
    "no duration": PerTask((0.0,) * 3),
    "tiny": Pool((5e-324, 1e-300)),
}


@pytest.mark.parametrize("durations", NASTY.values(), ids=NASTY)
@pytest.mark.parametrize("every_stage", [False, True])
def test_features_of_nasty_workloads_are_finite_and_shares_are_shares(durations, every_stage):
    stages = (
        Stage(id="x", task_count=3, durations=durations),
        Stage(id="y", task_count=2**31 - 1, durations=Pool((1e15,)), estimated_task_s=1e15),
        *(
            Stage(id=f"{i}", task_count=1, durations=Pool((0.0,)), parents=("x",))
            for i in range(99)
        ),
    )
    workload = Workload(tuple(Job(id=str(j), arrival_s=0.0, stages=stages) for j in range(3)))
    episode = prepare(workload)
    state = load_episode(episode, Cluster(executors=5), seed=0)
    # Only the first decision: two billion tasks would take a while.
    assert engine.advance(state, episode.table) == 1
    rows = features(state, episode.table, every_stage=every_stage, future=True)
    count = rows.stage_pointer[1]
    for part in (rows.stages[:count], rows.jobs[:, :JOB_WIDTH], rows.globals):
        assert np.isfinite(part).all()
    shares = np.concatenate(
        [
            rows.stages[:count, [3, 4, 6, 7, 8, 9, 11, 13]].ravel(),
            rows.jobs[:, [0, 1, 2, 4, 8, 11, 18, 19]].ravel(),
        ]
    )
    assert shares.min() >= 0
    assert shares.max() <= 1 + 1e-6
    # All but the fan-out and the backlog in minutes are logarithms or small counts.
    assert np.delete(rows.stages[:count], 5, axis=1).max() < 20
    assert np.delete(rows.jobs[:, :JOB_WIDTH], [5, 9], axis=1).max() < 20
