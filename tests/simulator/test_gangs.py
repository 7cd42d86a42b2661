"""Gangs: all tasks start together or not at all; and what they change for everybody else."""

import numpy as np
import pytest
import strategies
from byhand import FirstComeFirst, Script, gang, job, lines, run, stage
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import RandomDecisions, check_timeline, drive

from ganger.errors import SimulationError, WorkloadError
from ganger.schedulers import parse_scheduler
from ganger.simulator.observation import Decision
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Workload

pytestmark = pytest.mark.uncompiled

DAG_SCHEDULERS = ["fifo", "fair", "wfair:leftover=idle", "srpt:cap=sqrt,c=0.3,leftover=idle"]
DAG_SCHEDULERS += ["srpt:source=first", "kshortest:k=1", "cpf", "random", "fair:source=capped"]


# ---------------------------------------------------------------- one gang
def test_a_gang_starts_whole_without_a_moving_delay_and_takes_one_duration():
    result = run(4, (job("a", 0, gang("g", 3, 5.0)),), FirstComeFirst())
    assert lines(result) == [(0, 5, 0, 0, 0), (0, 5, 0, 0, 1), (0, 5, 0, 0, 2)]
    assert len(set(result.timeline["executor"])) == 3
    assert result.events == 2  # the job's arrival, the gang's end
    assert result.decisions == 1
    assert result.busy_s == 15.0


def test_a_gangs_tasks_share_one_value_and_its_luck_is_its_own():
    jobs = tuple(job(f"{i}", 0, gang("g", 4, 1.0, 2.0, 3.0)) for i in range(8))
    result = run(4, jobs, FirstComeFirst())
    taken = {}
    for start_s, finish_s, j, _, _ in lines(result):
        taken.setdefault(j, set()).add(round(finish_s - start_s, 9))
    assert all(len(values) == 1 for values in taken.values())
    assert len(set.union(*taken.values())) > 1


def test_a_gang_waits_for_all_its_executors_and_holds_none_meanwhile():
    # a takes 2 of 3 until 10; b needs 3; c, which came last, uses the third from 2 to 5.
    jobs = job("a", 0, gang("g", 2, 10.0)), job("b", 1, gang("g", 3, 1.0))
    jobs += (job("c", 2, gang("g", 1, 3.0)),)
    result = run(3, jobs, FirstComeFirst())
    assert result.first_start_s.tolist() == [0.0, 10.0, 2.0]
    assert result.finish_s.tolist() == [10.0, 11.0, 5.0]


def test_all_that_happens_in_an_instant_is_known_before_a_gang_is_chosen():
    # Two gangs end at 10, when c arrives: one round, with all four executors.
    scheduler = FirstComeFirst()
    jobs = job("a", 0, gang("g", 2, 10.0)), job("b", 0, gang("g", 2, 10.0))
    jobs += job("c", 10, gang("g", 4, 1.0)), job("d", 10, gang("g", 1, 1.0))
    result = run(4, jobs, scheduler)
    at_10 = [observation for observation in scheduler.asked if observation.time_s == 10.0]
    assert [observation.on_offer for observation in at_10] == [4]
    assert result.first_start_s.tolist() == [0.0, 0.0, 10.0, 11.0]


def test_a_gang_of_no_duration_happens():
    jobs = (
        job("a", 0, gang("g", 2, 0.0), gang("h", 2, 0.0, after="g")),
        job("b", 0, gang("g", 1, 1.0)),
    )
    result = run(2, jobs, FirstComeFirst())
    assert result.finish_s.tolist() == [0.0, 1.0]


def test_a_gang_gets_all_it_needs_whatever_the_limit_says():
    result = run(3, (job("a", 0, gang("g", 3, 1.0)),), Script(("a", "g", 1)))
    assert result.finish_s[0] == 1.0


def test_a_scheduler_may_decline_and_is_asked_again_when_something_changes():
    scheduler = Script(None, None)
    jobs = job("a", 0, gang("g", 1, 1.0)), job("b", 5, gang("g", 1, 1.0))
    jobs += (job("c", 7, gang("g", 1, 1.0)),)
    result = run(3, jobs, scheduler)
    assert scheduler.times_s[:3] == [0.0, 5.0, 7.0]
    assert result.first_start_s.tolist() == [7.0, 7.0, 7.0]


def test_a_gang_that_does_not_fit_now_is_refused_with_the_reason():
    class ATooLargeOneNext:
        def decide(self, observation):
            return Decision(job="ab"[observation.version], stage="g", limit=1)

    jobs = job("a", 0, gang("g", 1, 1.0)), job("b", 0, gang("g", 3, 9.0), gang("h", 1, 9.0))
    with pytest.raises(SimulationError, match=r"gang of 3: .* on offer"):
        simulate(Cluster(executors=3), Workload(jobs), ATooLargeOneNext())


# ---------------------------------------------------------------- limits
def test_a_gang_is_killed_at_its_limit_only_when_asked_to():
    jobs = Workload((job("a", 0, gang("g", 2, 9.0, limit_s=4.0), stage("y", 1.0, after="g")),))
    cluster = Cluster(executors=2, move_delay_s=0.0)
    allowed = simulate(cluster, jobs, parse_scheduler("fifo"))
    assert (allowed.finish_s[0], allowed.killed) == (10.0, 0)
    killed = simulate(cluster, jobs, parse_scheduler("fifo"), kill_at_limit=True)
    assert (killed.finish_s[0], killed.killed, killed.finished) == (5.0, 1, 1)
    assert killed.summary()["killed"] == 1


def test_a_gang_that_takes_exactly_its_limit_or_has_none_is_not_killed():
    jobs = Workload((job("a", 0, gang("g", 1, 4.0, limit_s=4.0)), job("b", 0, gang("g", 1, 5.0))))
    result = simulate(Cluster(executors=2), jobs, parse_scheduler("fifo"), kill_at_limit=True)
    assert (result.finish_s.tolist(), result.killed) == ([4.0, 5.0], 0)


def test_a_job_that_can_never_fit_is_refused_before_anything_runs():
    class Never:
        def decide(self, observation):
            raise AssertionError("was asked")

    jobs = Workload((job("ok", 0, gang("g", 4, 1.0)), job("big", 0, gang("g", 5, 1.0))))
    with pytest.raises(WorkloadError, match="never run on 4 executors: at once 'big' asks for 5"):
        simulate(Cluster(executors=4), jobs, Never())


def test_jobs_that_can_never_fit_are_left_out_and_counted_when_asked_to():
    jobs = Workload((job("ok", 0, gang("g", 4, 1.0)), job("big", 0, gang("g", 5, 1.0))))
    cluster = Cluster(executors=4)
    result = simulate(cluster, jobs, parse_scheduler("fifo"), reject_unfit=True)
    assert (result.submitted, result.finished, result.rejected, result.unfinished) == (2, 1, 1, 0)
    with pytest.raises(WorkloadError, match="2 jobs can never run on 1 executors"):
        simulate(Cluster(executors=1), jobs, parse_scheduler("fifo"), reject_unfit=True)


# ---------------------------------------------------------------- mixtures
def test_a_dag_job_around_a_gang():
    # 2 tasks of 1 s after a move of 2 s, the gang from 3 to 8 on all three, which are nobody's
    # then: y's executor moves for 2 s.
    stages = stage("x", 1.0, 1.0), gang("g", 3, 5.0, after="x"), stage("y", 1.0, after="g")
    result = run(3, (job("a", 0, *stages),), FirstComeFirst())
    assert [line[:2] for line in lines(result)] == [(2, 3)] * 2 + [(3, 8)] * 3 + [(10, 11)]


def test_executors_of_a_job_that_only_waits_for_a_gang_serve_others():
    # The executor that ends x at 3 has no use in its job, whose gang needs both; b has one till 11.
    a = job("a", 0, stage("x", 1.0), gang("g", 2, 5.0, after="x"))
    b = job("b", 1, gang("g", 1, 10.0))
    result = run(2, (a, b), FirstComeFirst())
    assert result.first_start_s.tolist() == [2.0, 1.0]
    assert result.finish_s.tolist() == [16.0, 11.0]


def test_two_jobs_that_hold_idle_executors_do_not_wait_for_each_other():
    # Each has two executors and a gang of three to come: of four, somebody must let go.
    def stages():
        return stage("x", 1.0, 1.0), gang("g", 3, 1.0, after="x"), stage("y", 1.0, after="g")

    scheduler = Script(("a", "x", 2), ("b", "x", 2))
    result = run(4, (job("a", 0, *stages()), job("b", 0, *stages())), scheduler)
    assert not result.unfinished


def test_executors_may_be_sent_ahead_to_a_stage_that_follows_a_gang():
    stages = gang("g", 1, 5.0), stage("y", 1.0, after="g")
    scheduler = Script(("a", "g", 1), ("a", "y", 9))
    result = run(2, (job("a", 0, *stages),), scheduler)
    assert lines(result)[-1][:2] == (5, 6)  # it moved while the gang ran


def test_a_job_of_tasks_that_arrives_while_a_gang_waits_is_served_at_once():
    jobs = job("a", 0, gang("g", 2, 10.0)), job("b", 1, gang("g", 3, 1.0))
    result = run(3, (*jobs, job("c", 2, stage("x", 1.0))), FirstComeFirst())
    assert result.finish_s[2] == 5.0


@settings(max_examples=60)
@given(st.data(), st.integers(1, 6), st.integers(0, 2**32), st.booleans())
def test_any_decisions_on_any_mixture_keep_the_rules(data, executors, seed, kill):
    workload = data.draw(strategies.mixtures(executors))
    cluster = Cluster(executors=executors, move_delay_s=data.draw(st.sampled_from([0.0, 2.0])))
    result = drive(cluster, workload, RandomDecisions(seed), seed=seed, kill_at_limit=kill)
    assert result.unfinished == 0
    check_timeline(cluster, workload, result)


@settings(max_examples=40)
@given(st.data(), st.integers(1, 6))
def test_schedulers_of_dag_jobs_end_every_mixture(data, executors):
    workload = data.draw(strategies.mixtures(executors))
    for text in DAG_SCHEDULERS:
        result = simulate(Cluster(executors=executors), workload, parse_scheduler(text))
        assert result.finished + result.unfinished == result.submitted
        assert result.unfinished == 0, text


@settings(max_examples=25)
@given(st.data(), st.integers(1, 6))
def test_they_decide_on_gangs_the_same_inside_the_engine_and_through_the_protocol(data, executors):
    class Outside:
        def __init__(self, scheduler):
            self.decide = scheduler.decide

    workload, cluster = data.draw(strategies.mixtures(executors)), Cluster(executors=executors)
    for text in DAG_SCHEDULERS:
        inside = simulate(cluster, workload, parse_scheduler(text))
        outside = simulate(cluster, workload, Outside(parse_scheduler(text)))
        np.testing.assert_array_equal(inside.finish_s, outside.finish_s, err_msg=text)


@settings(max_examples=40)
@given(st.data(), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_finished_rejected_and_unfinished_are_all_that_was_submitted(
    data, asked_for, executors, kill
):
    workload = data.draw(strategies.mixtures(asked_for))
    too_wide = {
        job.id
        for job in workload.jobs
        if any(stage.gang and stage.task_count > executors for stage in job.stages)
    }
    cluster, fifo = Cluster(executors=executors), parse_scheduler("fifo")
    if len(too_wide) == len(workload.jobs):
        with pytest.raises(WorkloadError, match="can never run"):
            simulate(cluster, workload, fifo, kill_at_limit=kill, reject_unfit=True)
        return
    result = simulate(cluster, workload, fifo, kill_at_limit=kill, reject_unfit=True)
    assert (result.rejected, result.unfinished) == (len(too_wide), 0)
    assert result.finished + result.rejected + result.unfinished == len(workload.jobs)
    assert result.submitted == len(workload.jobs)
