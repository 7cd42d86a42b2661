"""A policy as a scheduler: one observation, one decision, in the simulator and outside."""

import threading

import numpy as np
import pytest
import strategies
from byhand import gang, job
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check_timeline, drive

from ganger.policy.layout import aligned_zeros, initial_vector, vector_size
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import parse_scheduler
from ganger.simulator.observation import Observation
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, Pool, Stage, Workload, synthetic_stages

both = pytest.mark.parametrize("messages", [False, True])


def policy(messages, *, sample=False, seed=0):
    vector = aligned_zeros(vector_size(messages))
    vector[:] = initial_vector(np.random.default_rng(seed), messages) * np.float32(2)
    return PolicyScheduler(vector, messages=messages, sample=sample)


class ByObservation:
    """The same policy, asked through the Python protocol."""

    def __init__(self, scheduler):
        self.decide = scheduler.decide


@both
@settings(max_examples=20)
@given(workload=strategies.workloads(), executors=st.integers(1, 60), seed=st.integers(0, 99))
def test_inside_the_engine_and_by_observations_a_policy_decides_the_same(
    messages, workload, executors, seed
):
    scheduler, cluster = policy(messages, seed=seed), Cluster(executors=executors)
    inside = simulate(cluster, workload, scheduler, timeline=True)
    outside = drive(cluster, workload, ByObservation(scheduler))
    assert inside.decisions == outside.decisions
    np.testing.assert_array_equal(inside.timeline, outside.timeline)
    check_timeline(cluster, workload, inside)


@both
@settings(max_examples=20)
@given(data=st.data(), executors=st.integers(1, 9), seed=st.integers(0, 99), sample=st.booleans())
def test_on_gangs_it_decides_the_same_and_only_what_fits(messages, data, executors, seed, sample):
    class Watched:
        def decide(self, observation):
            decision = scheduler.decide(observation)
            (chosen,) = (
                stage
                for job in observation.jobs
                for stage in job.schedulable
                if (job.id, stage.id) == (decision.job, decision.stage)
            )
            if chosen.gang:
                assert chosen.tasks <= observation.on_offer <= observation.idle
            return decision

    workload, cluster = data.draw(strategies.mixtures(executors)), Cluster(executors=executors)
    scheduler = policy(messages, seed=seed, sample=sample)
    outside = drive(cluster, workload, Watched())
    assert outside.unfinished == 0
    check_timeline(cluster, workload, outside)
    if not sample:  # draws are keyed by the episode inside, and by the version outside
        inside = simulate(cluster, workload, scheduler, timeline=True)
        assert inside.decisions == outside.decisions
        np.testing.assert_array_equal(inside.timeline, outside.timeline)


@pytest.mark.parametrize("sample", [False, True])
@both
def test_it_reserves_nothing_so_a_wide_gang_waits_while_narrow_ones_keep_coming(messages, sample):
    """Of four executors a takes two for 10 s; narrow ones of 8 s come every 6 s from 2 s on.

    Some narrow one runs until 2 + 4 x 6 + 8 = 34 s. Backfilling keeps the second out at 8 s.
    """
    jobs = job("a", 0, gang("g", 2, 10.0)), job("wide", 1, gang("g", 4, 1.0))
    jobs += tuple(job(f"narrow {i}", 2 + 6 * i, gang("g", 1, 8.0)) for i in range(5))
    cluster, workload = Cluster(executors=4), Workload(jobs)
    learned = simulate(cluster, workload, policy(messages, sample=sample))
    assert learned.first_start_s.tolist() == [0.0, 34.0, 2.0, 8.0, 14.0, 20.0, 26.0]
    easy = simulate(cluster, workload, parse_scheduler("fcfs:backfill=easy"))
    assert easy.first_start_s[1] == 10.0


def synthetic_workload(jobs=6, interarrival_s=20.0):
    return Workload(
        tuple(
            Job(id=str(i), arrival_s=i * interarrival_s, stages=synthetic_stages(0, i))
            for i in range(jobs)
        )
    )


@both
def test_a_policy_that_samples_repeats_itself_by_seed(messages):
    workload, cluster = synthetic_workload(), Cluster(executors=20)
    runs = [simulate(cluster, workload, policy(messages, sample=True), seed=s) for s in (1, 1, 2)]
    assert runs[0].finish_s.tolist() == runs[1].finish_s.tolist()
    assert runs[0].finish_s.tolist() != runs[2].finish_s.tolist()


@both
def test_sampling_by_observation_answers_every_version(messages):
    """Keys of all sizes: half of the 64-bit words do not fit a signed one."""
    scheduler = policy(messages, sample=True)
    result = simulate(Cluster(executors=20), synthetic_workload(), ByObservation(scheduler))
    assert result.unfinished == 0
    assert result.decisions > 30


def test_nothing_to_choose_is_answered_with_none():
    observation = Observation(
        version=0, time_s=1.0, executors=4, on_offer=4, source_job=None, idle=4, jobs=()
    )
    assert policy(False).decide(observation) is None


def test_one_scheduler_serves_states_of_any_size_one_after_another():
    """A dense job after a sparse one of as many stages: more edges, not more stages."""

    def pool(name, after=()):
        return Stage(id=name, parents=after, task_count=2, durations=Pool((1.0,)))

    chain = tuple(pool(str(i), (str(i - 1),) if i else ()) for i in range(30))
    dense = tuple(pool(str(i), tuple(str(p) for p in range(i))) for i in range(30))
    single = (pool("0"),)
    scheduler, cluster = policy(True), Cluster(executors=3)
    for stages in (single, chain, dense, single):
        workload = Workload((Job(id="a", arrival_s=0.0, stages=stages),))
        result = simulate(cluster, workload, scheduler)
        assert result.finish_s == simulate(cluster, workload, policy(True)).finish_s
    assert len(scheduler._room.rows.edges) >= 30 * 29 // 2


def test_one_scheduler_serves_several_threads_at_once():
    workload, cluster = synthetic_workload(), Cluster(executors=20)
    scheduler = policy(False)
    expected = simulate(cluster, workload, scheduler).finish_s.tolist()
    found = []

    def run():
        for _ in range(5):
            found.append(simulate(cluster, workload, scheduler).finish_s.tolist())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e38])
@both
def test_weights_that_are_not_finite_still_give_legal_decisions(messages, poison):
    """A broken policy may schedule badly; it must not write outside of its memory."""
    scheduler = policy(messages, sample=True)
    scheduler._vector[::7] = poison
    result = simulate(Cluster(executors=20), synthetic_workload(), scheduler)
    assert result.unfinished == 0
