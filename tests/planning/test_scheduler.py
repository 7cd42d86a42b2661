"""Looking ahead: never worse where nothing is unknown, blind to what is to come, repeatable."""

import threading

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check_timeline

from ganger import streams
from ganger.errors import SchedulerError
from ganger.planning import PlanningScheduler, load_planner
from ganger.policy.checkpoint import checkpoint_path, fingerprint, write_checkpoint
from ganger.policy.layout import aligned_zeros, initial_vector, vector_size
from ganger.policy.scheduler import PolicyScheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.streams import Stream
from ganger.workload import Job, Pool, Stage, Wave, Waves, Workload, synthetic_stages

both = pytest.mark.parametrize("messages", [False, True])


def weights(messages=False, seed=0):
    vector = aligned_zeros(vector_size(messages))
    vector[:] = initial_vector(np.random.default_rng(seed), messages) * np.float32(2)
    return vector


def synthetic_workload(jobs=6, interarrival_s=20.0):
    return Workload(
        tuple(
            Job(id=str(i), arrival_s=i * interarrival_s, stages=synthetic_stages(0, i))
            for i in range(jobs)
        )
    )


seconds = st.sampled_from((0.0, 1.0, 1.0, 2.0, 5.0, 0.3))


@st.composite
def certain_jobs(draw):
    """Jobs that are there at once and whose tasks take as long as they are told to."""
    jobs = []
    for j in range(draw(st.integers(1, 5))):
        stages = [
            Stage(
                id=str(k),
                parents=tuple(str(p) for p in range(k) if draw(st.booleans())),
                task_count=draw(st.integers(1, 5)),
                durations=Waves(levels=(Wave(executors=1, first_s=(draw(seconds),)),)),
            )
            for k in range(draw(st.integers(1, 4)))
        ]
        jobs.append(Job(id=str(j), arrival_s=0.0, stages=tuple(stages)))
    return Workload(tuple(jobs))


@settings(max_examples=40, deadline=None)
@given(workload=certain_jobs(), executors=st.integers(1, 12), seed=st.integers(0, 99))
def test_where_nothing_is_unknown_a_plan_is_never_worse_than_the_policy(workload, executors, seed):
    cluster, vector = Cluster(executors=executors), weights(seed=seed)
    planner = PlanningScheduler(vector, budget=10**9)
    planned = simulate(cluster, workload, planner, timeline=True)
    policy = simulate(cluster, workload, PolicyScheduler(vector))
    assert planned.mean_jct_s <= policy.mean_jct_s + 1e-9
    check_timeline(cluster, workload, planned)


def test_a_plan_improves_an_untrained_policy_by_far():
    workload, cluster = synthetic_workload(12), Cluster(executors=20)
    planned = simulate(cluster, workload, PlanningScheduler(weights()))
    policy = simulate(cluster, workload, PolicyScheduler(weights()))
    assert planned.mean_jct_s < 0.8 * policy.mean_jct_s


@both
@settings(max_examples=30, deadline=None)
@given(workload=strategies.workloads(), executors=st.integers(1, 60))
def test_any_workload_is_run_to_its_end_by_legal_decisions(messages, workload, executors):
    cluster = Cluster(executors=executors)
    planner = PlanningScheduler(weights(messages), messages=messages)
    check_timeline(cluster, workload, simulate(cluster, workload, planner, timeline=True))


def test_gangs_and_other_jobs_are_planned_together():
    gang = Stage(id="g", task_count=3, durations=Pool((5.0,)), gang=True, limit_s=9.0)
    after = Stage(id="x", parents=("g",), task_count=4, durations=Pool((1.0, 2.0)))
    jobs = [
        Job(id=str(j), arrival_s=j / 2, stages=(gang, after) if j % 2 else synthetic_stages(0, j))
        for j in range(8)
    ]
    workload, cluster = Workload(tuple(jobs)), Cluster(executors=5)
    result = simulate(cluster, workload, PlanningScheduler(weights()), timeline=True)
    assert result.unfinished == 0
    check_timeline(cluster, workload, result)


def test_jobs_to_come_change_nothing_before_they_are_there():
    jobs = synthetic_workload(4, 5.0).jobs
    late = tuple(
        Job(id=f"late {k}", arrival_s=60.0, stages=synthetic_stages(1, k)) for k in range(3)
    )
    runs = [
        simulate(
            Cluster(executors=8), Workload(given), PlanningScheduler(weights()), timeline=True
        ).timeline
        for given in (jobs, jobs + late)
    ]
    assert runs[0]["start_s"].max() > 60
    before = [run[run["finish_s"] < 60.0] for run in runs]
    assert len(before[0]) > 10
    np.testing.assert_array_equal(*before)


def test_it_decides_the_same_in_every_run_and_thread():
    workload, cluster = synthetic_workload(), Cluster(executors=20)
    planner = PlanningScheduler(weights())
    results = []

    def run():
        results.append(simulate(cluster, workload, planner, seed=3).finish_s)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run()
    assert len(results) == 4
    for result in results[1:]:
        np.testing.assert_array_equal(results[0], result)


def test_a_small_budget_still_decides_and_a_single_proposal_is_the_policys_own():
    workload, cluster = synthetic_workload(), Cluster(executors=20)
    assert simulate(cluster, workload, PlanningScheduler(weights(), budget=1)).unfinished == 0
    alone = simulate(cluster, workload, PlanningScheduler(weights(), proposals=1))
    policy = simulate(cluster, workload, PolicyScheduler(weights()))
    np.testing.assert_array_equal(alone.finish_s, policy.finish_s)


def test_a_planner_is_loaded_from_a_run(tmp_path):
    about = {
        "messages": False,
        "layout": fingerprint(False),
        "workload": "synthetic",
        "executors": 6,
        "jobs": 4,
        "interarrival_s": 10.0,
        "move_delay_s": 1.0,
    }
    vector = initial_vector(streams.rng(0, Stream.LEARNER), False)
    write_checkpoint(checkpoint_path(tmp_path, 1), 1, {"policy": vector}, about)
    loaded = load_planner(checkpoint_path(tmp_path, 1))
    workload, cluster = synthetic_workload(3), Cluster(executors=6)
    np.testing.assert_array_equal(
        simulate(cluster, workload, loaded).finish_s,
        simulate(cluster, workload, PlanningScheduler(vector)).finish_s,
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"proposals": 0}, "proposals is 0"),
        ({"least_probability": 0.0}, "above 0, and at most 1"),
        ({"least_probability": float("nan")}, "least_probability is nan"),
        ({"budget": 0}, "budget is 0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(SchedulerError, match=message):
        PlanningScheduler(weights(), **settings)
