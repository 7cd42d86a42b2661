"""Observations: what a scheduler sees, and that compiled code decides on them as on the state."""

import msgspec
import numpy as np
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import RandomDecisions, drive

from ganger.policy.features import JOB_WIDTH, Rows, new_rows, write_features
from ganger.policy.forward import new_scratch
from ganger.simulator import engine
from ganger.simulator.observation import Observation
from ganger.simulator.observing import Names, observe, state_of
from ganger.simulator.simulate import Cluster


def names_of(observation):
    return Names(
        [job.id for job in observation.jobs],
        [tuple(stage.id for stage in job.stages) for job in observation.jobs],
        [tuple(stage.parents for stage in job.stages) for job in observation.jobs],
    )


def rows_of(state, table, *, every_stage):
    """What the policy sees, one array a name; indices of stages are the state's own business."""
    stages = len(state.stages)
    rows = new_rows(1, stages, len(state.jobs), stages * stages + 1)
    rows.globals[:] = 0
    scratch = new_scratch(len(state.jobs), stages, stages)
    write_features(
        state, table, rows, np.int64(0), every_stage, np.bool_(False), scratch.path,
        scratch.work_path,
    )  # fmt: skip
    ends = {
        "stage": rows.stage_pointer[1], "job": rows.job_pointer[1], "edges": rows.edge_pointer[1],
        "stages": rows.stage_pointer[1], "jobs": rows.job_pointer[1],
    }  # fmt: skip
    rows.jobs[:, JOB_WIDTH:] = 0  # only the critic's
    return {
        name: getattr(rows, name)[: ends.get(name, ends.get(name.split("_")[0]))]
        for name in Rows.FIELDS
        if name != "stage_index" and not name.endswith("_pointer")
    }


def test_a_state_made_of_an_observation_is_observed_the_same_and_looks_the_same_to_a_policy():
    executors = st.integers(1, 9)

    @settings(max_examples=40)
    @given(strategies.workloads(max_size=4), executors, st.integers(0, 2**32), st.booleans())
    def check(workload, executors, seed, every_stage):
        def look(state, table, observation):
            again, its_table = state_of(observation)
            assert observe(again, its_table, names_of(observation)) == observation
            here = rows_of(state, table, every_stage=every_stage)
            there = rows_of(again, its_table, every_stage=every_stage)
            for name in here:
                np.testing.assert_array_equal(here[name], there[name], err_msg=name)

        drive(Cluster(executors=executors), workload, RandomDecisions(seed, decline=0.1), look=look)

    check()


@settings(max_examples=15)
@given(strategies.workloads(max_size=3), st.integers(0, 2**32))
def test_what_an_observation_says_of_stages_and_jobs_adds_up(workload, seed):
    def look(state, table, observation):
        clock = state.clock[0]
        assert observation.version == clock["decisions"]
        bound = sum(job.executors for job in observation.jobs)
        moving = sum(stage.moving for job in observation.jobs for stage in job.stages)
        assert bound + moving <= observation.executors
        for job in observation.jobs:
            assert job.supply >= job.executors
            for stage in job.stages:
                running = stage.launched - stage.finished
                assert stage.demand == stage.tasks - stage.launched - stage.committed - stage.moving
                assert 0 <= running <= stage.executors
            assert job.remaining_work_s >= 0
        source = {job.id: job for job in observation.jobs}.get(observation.source_job)
        if observation.source_stage is not None:
            stage = next(s for s in source.stages if s.id == observation.source_stage)
            assert stage.executors == observation.on_offer or observation.version > 0

    drive(Cluster(executors=4), workload, RandomDecisions(seed), look=look)


@settings(max_examples=10)
@given(strategies.workloads(max_size=3), st.integers(0, 2**32))
def test_an_observation_survives_json(workload, seed):
    scheduler = RandomDecisions(seed)
    drive(Cluster(executors=3), workload, scheduler)
    for observation in scheduler.observations:
        text = msgspec.json.encode(observation)
        assert msgspec.json.decode(text, type=Observation) == observation


def test_an_observation_without_jobs_makes_an_empty_state():
    observation = Observation(
        version=0, time_s=1.0, executors=4, on_offer=4, source_job=None, idle=4, jobs=()
    )
    state, _ = state_of(observation)
    assert state.clock[0]["active"] == 0
    assert engine.common_pool(state) == engine.source_of_executor(state, 0)
