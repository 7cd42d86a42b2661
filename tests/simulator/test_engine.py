"""The rules of docs/simulator.md, each in a case small enough to work out by hand."""

import numpy as np
import pytest
import strategies
from byhand import FirstComeFirst, Script, job, lines, run, stage
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import RandomDecisions, check_timeline, drive

from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, Workload

pytestmark = pytest.mark.uncompiled


# ---------------------------------------------------------------- executors and moves
def test_an_executor_that_changes_jobs_pays_the_delay_once():
    scheduler = FirstComeFirst()
    result = run(1, (job("a", 0, stage("x", 1.0, 1.0, 1.0)),), scheduler)
    assert lines(result) == [(2, 3, 0, 0, 0), (3, 4, 0, 0, 1), (4, 5, 0, 0, 2)]
    assert (result.first_start_s[0], result.finish_s[0]) == (2.0, 5.0)
    assert result.events == 5  # the job's arrival, the executor's, three tasks
    assert result.decisions == 1


def test_another_stage_of_the_same_job_costs_no_delay():
    result = run(1, (job("a", 0, stage("x", 1.0), stage("y", 1.0, after="x")),), FirstComeFirst())
    assert result.finish_s[0] == 4.0


def test_an_executor_stays_with_its_stage_while_it_has_tasks():
    scheduler = Script(("a", "x", 1), ("b", "y", 1))
    jobs = job("a", 0, stage("x", 10.0, 10.0, 10.0)), job("b", 5, stage("y", 1.0))
    result = run(1, jobs, scheduler)
    assert scheduler.times_s == [0.0, 32.0]  # neither when b arrives nor between a's tasks
    assert result.finish_s.tolist() == [32.0, 35.0]


def test_a_job_that_arrives_while_everybody_is_busy_waits_for_the_next_round():
    scheduler = FirstComeFirst()
    jobs = job("a", 0, stage("x", 10.0, 12.0)), job("b", 1, stage("y", 1.0))
    result = run(2, jobs, scheduler)
    # At 12 an executor ends x and the round is about both of x's; one is enough for b.
    assert scheduler.times_s == [0.0, 12.0]
    assert scheduler.asked[1].on_offer == 2
    assert result.finish_s.tolist() == [14.0, 15.0]


def test_a_job_that_arrives_while_executors_are_free_gets_them_at_once():
    scheduler = FirstComeFirst()
    jobs = job("a", 0, stage("x", 10.0)), job("b", 1, stage("y", 1.0))
    result = run(2, jobs, scheduler)
    assert scheduler.times_s == [0.0, 1.0]
    assert result.finish_s.tolist() == [12.0, 4.0]


def test_more_executors_than_tasks_leave_the_rest_idle_and_ask_no_more():
    scheduler = FirstComeFirst()
    result = run(10, (job("a", 0, stage("x", 1.0, 1.0, 1.0)),), scheduler)
    assert [(o.on_offer, o.idle) for o in scheduler.asked] == [(10, 10)]
    assert result.finish_s[0] == 3.0
    assert result.events == 7


def test_executors_sent_ahead_wait_in_the_jobs_pool_until_the_parents_are_done():
    """y may be chosen as soon as x has an executor for every task, long before x is done."""
    scheduler = Script(("a", "x", 1), ("a", "y", 2), ("a", "y", 99))
    result = run(2, (job("a", 0, stage("x", 5.0), stage("y", 1.0, 1.0, after="x")),), scheduler)
    assert [o.time_s for o in scheduler.asked] == [0.0, 0.0, 7.0]
    assert [s.id for s in scheduler.asked[0].jobs[0].schedulable] == ["x"]
    assert [s.id for s in scheduler.asked[1].jobs[0].schedulable] == ["y"]
    at_7 = scheduler.asked[2]  # x is done: both idle in the job's pool and are offered
    assert (at_7.on_offer, at_7.source_job, at_7.source_stage, at_7.idle) == (2, "a", None, 2)
    assert lines(result) == [(2, 7, 0, 0, 0), (7, 8, 0, 1, 0), (7, 8, 0, 1, 1)]


# ---------------------------------------------------------------- rounds and commitments
def test_two_jobs_of_one_instant_join_before_one_round():
    scheduler = FirstComeFirst()
    jobs = job("b", 3, stage("y", 1.0)), job("a", 3, stage("x", 1.0))
    result = run(2, jobs, scheduler)
    first = scheduler.asked[0]
    assert (first.time_s, [j.id for j in first.jobs]) == (3.0, ["b", "a"])
    assert result.finish_s.tolist() == [6.0, 6.0]


def test_executors_of_a_stage_are_decided_about_together_and_leave_one_by_one():
    jobs = job("a", 0, stage("x", 1.0, 2.0, 3.0)), job("b", 0, stage("y", 10.0, 10.0, 10.0))
    scheduler = Script(("a", "x", 3), ("b", "y", 3))
    result = run(3, jobs, scheduler)
    assert scheduler.times_s == [0.0, 3.0]
    second = scheduler.asked[1]
    assert (second.on_offer, second.source_job, second.source_stage) == (3, "a", "x")
    assert second.jobs[0].stages[0].executors == 3  # two of them still run there
    # They end x at 3, 4 and 5, and each then moves.
    assert lines(result)[3:] == [(5, 15, 1, 0, 0), (6, 16, 1, 0, 1), (7, 17, 1, 0, 2)]


def test_commitments_of_one_round_are_fulfilled_in_the_order_of_its_decisions():
    jobs = (
        job("a", 0, stage("x", 1.0, 2.0, 3.0)),
        job("b", 0, stage("y", 10.0, 10.0)),
        job("c", 0, stage("z", 10.0)),
    )
    scheduler = Script(("a", "x", 3), ("c", "z", 1), ("b", "y", 2))
    result = run(3, jobs, scheduler)
    assert scheduler.times_s == [0.0, 3.0, 3.0]
    committed = [s.committed for j in scheduler.asked[2].jobs for s in j.stages]
    assert committed == [0, 0, 1]
    assert [j.supply for j in scheduler.asked[2].jobs] == [3, 0, 1]
    assert result.finish_s.tolist() == [5.0, 17.0, 15.0]


def test_a_stage_is_chosen_at_most_once_in_a_round():
    scheduler = Script(("a", "x", 1))
    jobs = job("a", 0, stage("x", 1.0, 1.0, 1.0), stage("w", 1.0)), job("b", 0, stage("y", 1.0))
    run(3, jobs, scheduler)
    assert [s.id for j in scheduler.asked[1].jobs for s in j.schedulable] == ["w", "y"]


@pytest.mark.parametrize(
    ("limit", "given"),
    [(1, 1), (2, 2), (3, 3), (4, 4), (9, 4)],
)
def test_a_limit_counts_what_the_job_has_and_gives_at_least_one(limit, given):
    scheduler = Script(("a", "x", limit))
    run(6, (job("a", 0, stage("x", *[1.0] * 4), stage("y", *[1.0] * 9)),), scheduler)
    assert scheduler.asked[1].on_offer == 6 - given


def test_a_limit_counts_executors_bound_moving_and_promised_from_elsewhere():
    scheduler = Script(("a", "x", 2), ("a", "y", 3), ("a", "z", 2))
    stages = stage("x", *[9.0] * 2), stage("y", *[9.0] * 4), stage("z", *[9.0] * 2)
    run(9, (job("a", 0, *stages), job("b", 0, stage("w", 9.0))), scheduler)
    # The job has 2; up to 3 makes one more for y, and z gets one although 2 is reached.
    assert [o.on_offer for o in scheduler.asked[:4]] == [9, 7, 6, 5]


def test_the_limit_of_the_source_job_leaves_out_the_executors_on_offer():
    scheduler = Script(("a", "x", 4), ("a", "y", 3))
    jobs = (
        job("a", 0, stage("x", 1.0, 2.0, 2.0, 2.0), stage("y", *[9.0] * 4)),
        job("b", 1, stage("z", 9.0)),
    )
    run(4, jobs, scheduler)
    second, third = scheduler.asked[1:3]
    assert (second.on_offer, second.jobs[0].supply) == (4, 4)
    assert third.on_offer == 1  # of the four, a keeps three


def test_none_leaves_the_rest_of_the_round_where_it_is():
    scheduler = Script(("a", "x", 1), None, ("b", "y", 1))
    jobs = job("a", 0, stage("x", 1.0, 1.0), stage("v", 1.0)), job("b", 3.5, stage("y", 1.0))
    result = run(2, jobs, scheduler)
    # The executor that was left idle is offered again when b arrives; a's own does the rest of a.
    assert scheduler.times_s == [0.0, 0.0, 3.5, 4.0]
    assert result.finish_s.tolist() == [5.0, 6.5]


def test_executors_that_are_told_to_idle_stay_with_their_job_while_it_has_tasks_to_launch():
    scheduler = Script(("a", "x", 1), None, None)
    jobs = (
        job("a", 0, stage("x", 1.0), stage("y", 8.0), stage("z", 1.0, after="x")),
        job("b", 5, stage("w", 1.0)),
    )
    result = run(2, jobs, scheduler)
    # At 3 x is done, the executor idles in a's pool: not on offer when b arrives at 5.
    assert scheduler.times_s[:4] == [0.0, 0.0, 3.0, 5.0]
    assert scheduler.asked[2].source_job == "a"
    assert scheduler.asked[3].on_offer == 1
    assert scheduler.asked[3].source_job is None
    assert result.submitted == 2


def test_the_cluster_never_asks_when_nothing_may_be_chosen():
    scheduler = FirstComeFirst()
    jobs = [job(str(i), i, stage("x", 3.0, 1.0), stage("y", 1.0, after="x")) for i in range(6)]
    run(7, tuple(jobs), scheduler)
    assert all(any(j.schedulable for j in o.jobs) for o in scheduler.asked)


# ---------------------------------------------------------------- the backup rule
def late_for_y(*more_of_b, more=()):
    """Two executors are promised to y. The first does both its tasks; the second arrives at 6."""
    return (
        job("a", 0, stage("x", 1.0, 2.0)),
        job("b", 0, stage("y", 0.5, 0.5), *more_of_b),
        *more,
    )


def test_an_executor_nobody_needs_starts_its_own_jobs_first_runnable_stage():
    jobs = late_for_y(stage("w", 3.0))
    scheduler = Script(("a", "x", 2), ("b", "y", 2))
    result = run(2, jobs, scheduler)
    assert (6.0, 9.0, 1, 1, 0) in lines(result)  # at once, and nobody is asked
    assert scheduler.times_s == [0.0, 3.0]


def test_an_executor_nobody_needs_moves_to_the_first_stage_that_may_be_chosen():
    jobs = late_for_y(more=(job("c", 0, stage("z", 1.0)),))
    scheduler = Script(("a", "x", 2), ("b", "y", 2))
    result = run(2, jobs, scheduler)
    assert (8.0, 9.0, 2, 0, 0) in lines(result)  # the delay again
    assert scheduler.times_s == [0.0, 3.0]


def test_an_executor_nobody_needs_idles_if_no_stage_may_be_chosen():
    scheduler = Script(("a", "x", 2), ("b", "y", 2))
    jobs = late_for_y(more=(job("d", 20, stage("z", 1.0, 1.0)),))
    result = run(2, jobs, scheduler)
    assert result.finish_s.tolist() == [4.0, 6.0, 23.0]
    assert scheduler.asked[2].idle == 2


def test_an_executor_on_its_way_to_a_job_that_has_ended_serves_another():
    """y's first executor does all of b before the second arrives: the job it was for is gone."""
    jobs = (
        job("a", 0, stage("x", 1.0, 2.0)),
        job("b", 0, stage("y", 0.25, 0.25)),
        job("c", 0, stage("z", 1.0)),
    )
    scheduler = Script(("a", "x", 2), ("b", "y", 2), None)
    result = run(2, jobs, scheduler)
    assert result.finish_s[1] == 5.5
    assert result.finish_s[2] == 9.0  # arrives for b at 6, at c at 8


# ---------------------------------------------------------------- extremes
def test_tasks_of_no_duration_happen_in_order_and_take_no_time():
    stages = stage("x", 0.0, 0.0, 0.0), stage("y", 0.0, after="x"), stage("z", 0.0, after="y")
    result = run(1, (job("a", 0, *stages),), FirstComeFirst())
    assert [line[2:] for line in lines(result)] == [
        (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 2, 0)
    ]  # fmt: skip
    assert result.finish_s[0] == 2.0


def test_a_workload_that_takes_no_time_at_all_ends():
    jobs = tuple(job(str(i), 0, stage("x", 0.0, 0.0)) for i in range(4))
    result = run(3, jobs, FirstComeFirst(), move_delay_s=0.0)
    assert result.makespan_s == 0.0
    assert result.utilisation == 0.0
    assert result.finished == 4


def test_one_executor_does_everything_one_after_another():
    jobs = tuple(job(str(i), 0, stage("x", 1.0, 2.0), stage("y", 3.0)) for i in range(3))
    result = run(1, jobs, FirstComeFirst())
    assert result.makespan_s == 3 * (2.0 + 6.0)


def test_idle_days_between_jobs_pass_in_one_event():
    jobs = job("a", 0, stage("x", 1.0)), job("b", 1e7, stage("x", 1.0))
    result = run(1, jobs, FirstComeFirst())
    assert result.finish_s.tolist() == [3.0, 1e7 + 3.0]
    assert result.events == 6


def test_a_first_arrival_after_0_is_where_the_makespan_begins():
    result = run(1, (job("a", 100, stage("x", 1.0)),), FirstComeFirst())
    assert result.makespan_s == 3.0
    assert result.utilisation == 1.0 / 3.0


# ---------------------------------------------------------------- whatever a scheduler decides
clusters = st.builds(
    Cluster,
    executors=st.integers(1, 8) | st.just(40),
    move_delay_s=st.sampled_from([0.0, 0.5, 2.0]),
)


@settings(max_examples=60)
@given(strategies.workloads(), clusters, st.integers(0, 2**32), st.sampled_from([0.0, 0.0, 0.3]))
def test_whatever_is_decided_every_counter_and_timeline_is_right(workload, cluster, seed, decline):
    scheduler = RandomDecisions(seed, decline=decline)
    result = drive(cluster, workload, scheduler)
    assert all(any(j.schedulable for j in o.jobs) for o in scheduler.observations)
    assert [o.time_s for o in scheduler.observations] == sorted(
        o.time_s for o in scheduler.observations
    )
    if not decline:
        assert result.unfinished == 0, "a scheduler that never declines finishes everything"
    if not result.unfinished:
        check_timeline(cluster, workload, result)


@settings(max_examples=20)
@given(strategies.workloads(), clusters, st.integers(0, 2**32))
def test_two_runs_are_the_same_and_the_workload_is_never_changed(workload, cluster, seed):
    before = repr(workload)
    first = simulate(cluster, workload, RandomDecisions(seed), seed=3, timeline=True)
    second = simulate(cluster, workload, RandomDecisions(seed), seed=3, timeline=True)
    assert repr(workload) == before
    np.testing.assert_array_equal(first.timeline, second.timeline)
    assert first.events == second.events


@settings(max_examples=20)
@given(strategies.workloads(), clusters, st.integers(0, 2**32), st.randoms())
def test_relabelling_jobs_changes_only_their_ids(workload, cluster, seed, rng):
    names = [f"{rng.random()} {i}" for i in range(len(workload.jobs))]
    relabelled = Workload(
        tuple(
            Job(id=name, arrival_s=job.arrival_s, stages=job.stages)
            for name, job in zip(names, workload.jobs, strict=True)
        )
    )
    first = simulate(cluster, workload, RandomDecisions(seed), timeline=True)
    second = simulate(cluster, relabelled, RandomDecisions(seed), timeline=True)
    np.testing.assert_array_equal(first.timeline, second.timeline)
    np.testing.assert_array_equal(first.finish_s, second.finish_s)


@settings(max_examples=20)
@given(strategies.workloads(), clusters, st.integers(0, 2**32))
def test_a_job_that_arrives_after_the_end_changes_nothing_for_the_others(workload, cluster, seed):
    alone = simulate(cluster, workload, RandomDecisions(seed), timeline=True)
    late = job("late", alone.end_s + 1.0, stage("x", 1.0, 1.0))
    both = simulate(cluster, Workload((*workload.jobs, late)), RandomDecisions(seed), timeline=True)
    np.testing.assert_array_equal(alone.finish_s, both.finish_s[:-1])
    np.testing.assert_array_equal(alone.timeline, both.timeline[:-2])
    assert both.finish_s[-1] >= late.arrival_s + cluster.move_delay_s + 1.0


# ---------------------------------------------------------------- reconsidering
def test_an_executor_may_be_offered_once_more_after_a_job_arrived():
    scheduler = Script(("a", "x", 1), ("b", "y", 1), ("a", "x", 1))
    jobs = job("a", 0, stage("x", 10.0, 10.0, 10.0)), job("b", 5, stage("y", 1.0))
    result = run(1, jobs, scheduler, reconsider=True)
    assert scheduler.times_s == [0.0, 12.0, 15.0]  # x ends a task, then y, each with a move before
    asked = scheduler.asked[1]
    assert (asked.on_offer, asked.source_job, asked.source_stage) == (1, "a", "x")
    assert [one.id for one in asked.jobs[0].schedulable] == ["x"], "its stage may be chosen again"
    assert result.finish_s.tolist() == [37.0, 15.0]


def test_an_executor_that_is_offered_once_more_may_stay():
    for again in (("a", "x", 1), None):
        scheduler = Script(("a", "x", 1), again, ("b", "y", 1))
        jobs = job("a", 0, stage("x", 10.0, 10.0, 10.0)), job("b", 5, stage("y", 1.0))
        result = run(1, jobs, scheduler, reconsider=True)
        assert scheduler.times_s == [0.0, 12.0, 32.0], "once after each arrival"
        assert result.finish_s.tolist() == [32.0, 35.0]


# ---------------------------------------------------------------- work-conserving clusters
def test_nobody_waits_for_a_stage_that_cannot_start_yet():
    jobs = (
        job("a", 0, stage("x", 1.0, 9.0), stage("y", 1.0, 1.0, after="x")),
        job("b", 0, stage("z", 1.0, 1.0)),
    )
    holding = run(2, jobs, FirstComeFirst(), move_delay_s=0.0)
    assert holding.finish_s.tolist() == [10.0, 11.0], "one executor waits for y from 1 to 9"
    scheduler = FirstComeFirst()
    conserving = run(2, jobs, scheduler, move_delay_s=0.0, work_conserving=True)
    assert conserving.finish_s.tolist() == [10.0, 3.0]
    # At 1 the executor that ends x is asked about, and only z may be chosen; at 3 it idles; at 9
    # the other one is asked about, and then the one that idled.
    assert scheduler.times_s == [0.0, 1.0, 9.0, 9.0]
    assert [seen.on_offer for seen in scheduler.asked] == [2, 1, 1, 1]
    assert [seen.source_job for seen in scheduler.asked] == [None, "a", "a", None]


def test_executors_that_a_scheduler_left_idle_are_offered_when_a_stage_can_start():
    jobs = (job("a", 0, stage("x", 1.0, 1.0), stage("y", 1.0, 1.0, after="x")),)
    scheduler = Script(("a", "x", 1), None)
    result = run(3, jobs, scheduler, move_delay_s=0.0, work_conserving=True)
    assert [(seen.time_s, seen.on_offer) for seen in scheduler.asked] == [(0, 3), (2, 1), (2, 3)]
    assert result.finish_s.tolist() == [3.0]


@settings(max_examples=60)
@given(st.data(), st.integers(1, 8), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_these_rules_keep_the_books_right(data, executors, seed, reconsider, work_conserving):
    workload = data.draw(strategies.workloads(max_size=4) | strategies.mixtures(executors))
    cluster = Cluster(executors=executors, reconsider=reconsider, work_conserving=work_conserving)
    drive(cluster, workload, RandomDecisions(seed, decline=0.1))
    result = drive(cluster, workload, RandomDecisions(seed))
    assert result.finished == len(workload.jobs)
    check_timeline(cluster, workload, result)
