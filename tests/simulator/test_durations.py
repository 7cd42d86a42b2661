"""How long tasks take: in order, from a pool, or by wave; and that luck belongs to the task."""

import numpy as np
import pytest

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, PerTask, Pool, Stage, Wave, Waves, Workload

pytestmark = pytest.mark.uncompiled


def stage(name, tasks, durations, after=()):
    return Stage(id=name, parents=tuple(after), task_count=tasks, durations=durations)


def waves(*levels, **settings):
    return Waves(levels=levels, **settings)


def durations_s(stages, *, executors=1, scheduler="fifo", seed=0, jobs=1, arrival_s=0.0):
    """{(job, stage, task): seconds}."""
    workload = Workload(
        tuple(Job(id=str(j), arrival_s=j * arrival_s, stages=stages) for j in range(jobs))
    )
    result = simulate(
        Cluster(executors=executors),
        workload,
        parse_scheduler(scheduler),
        seed=seed,
        timeline=True,
    )
    return {
        (line["job"], line["stage"], line["task"]): round(line["finish_s"] - line["start_s"], 9)
        for line in result.timeline
    }


def in_order(stages, **how):
    return list(durations_s(stages, **how).values())


def test_measured_durations_are_taken_in_order_of_the_tasks():
    assert in_order((stage("x", 3, PerTask((3.0, 1.0, 2.0))),)) == [3.0, 1.0, 2.0]


ONE_LEVEL = waves(Wave(executors=1, fresh_s=(10.0,), first_s=(5.0,), rest_s=(1.0,)))


def test_the_first_task_after_a_move_is_fresh_and_later_ones_of_the_stage_are_rest():
    assert in_order((stage("x", 3, ONE_LEVEL),)) == [10.0, 1.0, 1.0]


def test_the_first_task_of_another_stage_of_the_job_is_first():
    assert in_order((stage("x", 2, ONE_LEVEL), stage("y", 2, ONE_LEVEL))) == [10.0, 1.0, 5.0, 1.0]


def test_an_executor_that_passed_through_its_jobs_pool_is_fresh_although_it_never_left():
    stages = stage("x", 2, ONE_LEVEL), stage("y", 2, ONE_LEVEL, after="x")
    assert in_order(stages) == [10.0, 1.0, 10.0, 1.0]


def test_without_fresh_values_a_fresh_task_takes_a_first_value_and_the_warm_up():
    values = waves(Wave(executors=1, first_s=(5.0,), rest_s=(1.0,)), warmup_s=0.5)
    assert in_order((stage("x", 2, values), stage("y", 1, values))) == [5.5, 1.0, 5.0]


def test_without_first_values_fresh_ones_serve_and_without_rest_values_first_ones():
    no_first = waves(Wave(executors=1, fresh_s=(10.0,), rest_s=(1.0,)))
    no_rest = waves(Wave(executors=1, fresh_s=(10.0,), first_s=(5.0,)))
    assert in_order((stage("x", 1, no_first), stage("y", 2, no_first))) == [10.0, 10.0, 1.0]
    assert in_order((stage("x", 2, no_rest),)) == [10.0, 5.0]


def test_a_level_without_values_takes_the_estimate():
    empty_at_1 = waves(Wave(executors=1), Wave(executors=9, rest_s=(4.0, 8.0)))
    assert in_order((stage("x", 2, empty_at_1),)) == [6.0, 6.0]


def test_below_the_lowest_and_above_the_highest_level_that_level_serves():
    def of(level):
        return Wave(executors=level, fresh_s=(float(level),))

    def used(executors):
        values = waves(of(3), of(5))
        taken = in_order((stage("x", executors, values),), executors=executors, scheduler="fair")
        return taken

    # All arrive at once, one after another: the first is bound to a job with 1 executor.
    assert used(1) == [3.0]
    assert used(3) == [3.0, 3.0, 3.0]
    assert used(9)[4:] == [5.0] * 5 or sorted(used(9))[4:] == [5.0] * 5


@pytest.mark.parametrize(("interpolation", "share_of_20"), [("linear", 0.3), ("inverted", 0.7)])
def test_between_levels_the_share_of_each_is_as_interpolated(interpolation, share_of_20):
    """13 executors: 3/10 of the way from 10 to 20."""
    values = waves(
        Wave(executors=10, first_s=(10.0,), rest_s=(10.0,)),
        Wave(executors=20, first_s=(20.0,), rest_s=(20.0,)),
        interpolation=interpolation,
    )
    tasks = 4000
    by_task = durations_s((stage("x", tasks, values),), executors=13)
    # The first ones start while others are still on their way to the job.
    taken = np.array([seconds for (_, _, task), seconds in by_task.items() if task >= 13])
    assert set(taken) == {10.0, 20.0}
    deviation = (0.3 * 0.7 / tasks) ** 0.5
    assert abs((taken == 20.0).mean() - share_of_20) < 5 * deviation


def test_every_value_of_a_pool_is_equally_likely():
    values = tuple(float(v) for v in range(1, 8))
    tasks = 7000
    taken = np.array(in_order((stage("x", tasks, Pool(values)),), executors=3))
    shares = np.array([(taken == v).mean() for v in values])
    assert np.abs(shares - 1 / 7).max() < 5 * (1 / 7 * 6 / 7 / tasks) ** 0.5


def test_a_tasks_luck_does_not_depend_on_who_schedules_it_or_when():
    pool = Pool(tuple(float(v) for v in range(1, 50)))
    stages = stage("x", 6, pool), stage("y", 4, pool), stage("z", 5, pool, after=("x", "y"))
    first = durations_s(stages, jobs=4, arrival_s=5.0, executors=3)
    for scheduler in ("fair", "srpt", "cpf", "random"):
        for executors in (1, 7):
            again = durations_s(
                stages, jobs=4, arrival_s=5.0, executors=executors, scheduler=scheduler
            )
            assert again == first


def test_luck_differs_by_seed_job_stage_and_task():
    pool = Pool(tuple(float(v) for v in range(1, 1000)))
    stages = stage("x", 6, pool), stage("y", 6, pool)
    taken = durations_s(stages, jobs=2)
    assert len(set(taken.values())) > 20
    assert taken != durations_s(stages, jobs=2, seed=1)


def test_luck_is_keyed_by_the_place_where_the_user_listed_the_stage():
    pool = Pool(tuple(float(v) for v in range(1, 1000)))
    parent, child = stage("x", 2, pool), stage("y", 3, pool, after="x")
    forward, backward = durations_s((parent, child)), durations_s((child, parent))
    # In both, stage 0 of the timeline is the parent: listed first or second.
    assert [forward[0, 0, k] for k in range(2)] == [backward[0, 1, k] for k in range(2)]
