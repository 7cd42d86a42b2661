"""Executor classes: an executor serves a stage only if its class meets the stage's demand."""

import numpy as np
import pytest
import strategies
from byhand import FirstComeFirst, lines
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import RandomDecisions, check_timeline, drive
from msgspec import structs

from ganger.errors import SimulationError, WorkloadError
from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Demand, Job, PerTask, Pool, Stage, Workload
from ganger.workload.classes import ExecutorClass, parse_class

pytestmark = pytest.mark.uncompiled

SMALL = ExecutorClass(name="small", count=2, cores=1, memory=4)
LARGE = ExecutorClass(name="large", count=1, cores=4, memory=16)


def cluster(*classes, move_delay_s=0.0):
    return Cluster(
        executors=sum(given.count for given in classes), move_delay_s=move_delay_s, classes=classes
    )


def stage(name, seconds, *, after=(), memory=0.0, cores=0.0, gang=False):
    return Stage(
        id=name,
        parents=tuple(after),
        task_count=len(seconds),
        durations=Pool((seconds[0],)) if gang else PerTask(tuple(map(float, seconds))),
        demand=Demand(cores=cores, memory=memory) if cores or memory else None,
        gang=gang,
    )


def run(classes, jobs, scheduler=None, **more):
    where = cluster(*classes, **more)
    result = drive(where, Workload(tuple(jobs)), scheduler or FirstComeFirst())
    check_timeline(where, Workload(tuple(jobs)), result)
    return result


def test_a_stage_runs_on_those_that_meet_its_demand_only():
    # Executors 0 and 1 are small, 2 is large: big's tasks run one after another.
    big = stage("big", [3, 3], memory=8)
    result = run([SMALL, LARGE], [Job(id="a", arrival_s=0.0, stages=(big,))])
    assert lines(result) == [(0, 3, 0, 0, 0), (3, 6, 0, 0, 1)]
    assert set(result.timeline["executor"]) == {2}


def test_what_any_executor_can_do_runs_on_all_of_them():
    result = run([SMALL, LARGE], [Job(id="a", arrival_s=0.0, stages=(stage("x", [1, 1, 1]),))])
    assert result.finish_s.tolist() == [1.0]


def test_either_size_must_be_met():
    wide = ExecutorClass(name="wide", count=1, cores=8, memory=1)
    jobs = [Job(id="a", arrival_s=0.0, stages=(stage("x", [1, 1], cores=2, memory=2),))]
    result = run([wide, LARGE], jobs)
    assert set(result.timeline["executor"]) == {1}
    assert result.finish_s.tolist() == [2.0]


def test_classes_are_offered_one_after_another():
    scheduler = FirstComeFirst()
    run([SMALL, LARGE], [Job(id="a", arrival_s=0.0, stages=(stage("x", [1, 1, 1, 1]),))], scheduler)
    first, second = scheduler.asked[:2]
    assert (first.time_s, first.executor_class, first.on_offer) == (0.0, 0, 2)
    assert (second.time_s, second.executor_class, second.on_offer) == (0.0, 1, 1)


def test_an_observation_tells_what_a_stage_demands():
    scheduler = FirstComeFirst()
    run([LARGE], [Job(id="a", arrival_s=0.0, stages=(stage("x", [1], memory=8),))], scheduler)
    seen = scheduler.asked[0].jobs[0].stages[0]
    assert (seen.cores, seen.memory) == (0.0, 8.0)


def test_an_executor_that_its_job_has_no_use_for_serves_others():
    # a's second stage is for large ones; the small ones that ran its first go to b, which waits.
    first, second = stage("x", [2, 2]), stage("y", [5], after=["x"], memory=8)
    jobs = [
        Job(id="a", arrival_s=0.0, stages=(first, second)),
        Job(id="b", arrival_s=1.0, stages=(stage("z", [4, 4], memory=4),)),
    ]
    result = run([SMALL, LARGE], jobs)
    # a runs x on the small ones; the large one idles until x is done.
    assert result.finish_s.tolist() == [7.0, 6.0]


def test_two_jobs_cannot_block_each_other_by_what_they_hold():
    # Each holds what the other one's next stage needs.
    jobs = [
        Job(
            id="a",
            arrival_s=0.0,
            stages=(
                stage("x", [1, 1], memory=4),
                stage("y", [1], after=["x"], memory=8),
                stage("z", [1], after=["y"]),
            ),
        ),
        Job(
            id="b",
            arrival_s=0.0,
            stages=(stage("x", [1], memory=8), stage("y", [1, 1], after=["x"])),
        ),
    ]
    result = run([SMALL, LARGE], jobs, RandomDecisions(1))
    assert result.unfinished == 0


def test_a_gang_runs_in_one_class():
    gang = stage("g", [5, 5], memory=4, gang=True)
    jobs = [Job(id="a", arrival_s=0.0, stages=(gang,)), Job(id="b", arrival_s=0.0, stages=(gang,))]
    result = run([SMALL, structs.replace(LARGE, count=2)], jobs)
    assert result.finish_s.tolist() == [5.0, 5.0]
    assert set(result.timeline["executor"]) == {0, 1, 2, 3}


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_a_gang_does_not_wait_where_its_class_has_too_few(backfill):
    # Three at once are only in the small class, which a holds until 5; b must not hold up the two
    # large executors meanwhile, which serve c.
    jobs = [
        Job(id="a", arrival_s=0.0, stages=(stage("g", [5, 5, 5], gang=True),)),
        Job(id="b", arrival_s=1.0, stages=(stage("g", [3, 3, 3], gang=True),)),
        Job(id="c", arrival_s=2.0, stages=(stage("g", [1, 1], gang=True),)),
    ]
    where = cluster(structs.replace(SMALL, count=3), structs.replace(LARGE, count=2))
    scheduler = parse_scheduler(f"fcfs:backfill={backfill}")
    result = simulate(where, Workload(tuple(jobs)), scheduler, timeline=True)
    check_timeline(where, Workload(tuple(jobs)), result)
    assert result.finish_s.tolist() == [5.0, 8.0, 3.0]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            (stage("x", [1], memory=17),),
            "'a' asks for 1; of a class that meets their",
        ),
        ((stage("x", [1], cores=5),), "at most 0, of 2 small (1 cores, 4 of memory), 1 large"),
        ((stage("x", [1, 1], memory=8, gang=True),), "'a' asks for 2; of a class"),
        ((stage("x", [1, 1, 1], gang=True),), "'a' asks for 3; of a class that meets"),
    ],
)
def test_what_no_class_can_serve_is_refused_before_the_run(stages, message):
    workload = Workload((Job(id="a", arrival_s=0.0, stages=stages),))
    with pytest.raises(WorkloadError) as error:
        simulate(cluster(SMALL, LARGE), workload, parse_scheduler("fair"))
    assert message in str(error.value)


def test_unfit_jobs_are_left_out_and_counted_when_asked_for():
    fits, not_so = stage("x", [1]), stage("x", [1], memory=17)
    jobs = tuple(Job(id=str(j), arrival_s=0.0, stages=(s,)) for j, s in enumerate([fits, not_so]))
    where = cluster(SMALL, LARGE)
    result = simulate(where, Workload(jobs), parse_scheduler("fair"), reject_unfit=True)
    assert (result.finished, result.rejected) == (1, 1)


# ---------------------------------------------------------------- anything
CLASSES = [
    ExecutorClass(name="quarter", count=3, memory=0.25),
    ExecutorClass(name="half", count=2, memory=0.5),
    ExecutorClass(name="most", count=2, memory=0.75),
    ExecutorClass(name="whole", count=1, memory=1.0),
]
"""Decima's setting: four sizes of memory."""


@st.composite
def demanding(draw, *, gangs=False):
    """Any workload whose stages ask for some memory."""
    workload = draw(strategies.workloads())
    jobs = []
    for job in workload.jobs:
        stages = []
        for given_stage in job.stages:
            memory = draw(st.sampled_from((0.0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.75, 1.0)))
            changes = {"demand": Demand(memory=memory)}
            if gangs and draw(st.booleans()):
                able = max(c.count for c in CLASSES if c.memory >= memory)
                changes |= {"gang": True, "task_count": min(given_stage.task_count, able)}
                changes["durations"] = Pool((draw(st.sampled_from((0.0, 1.0, 2.5))),))
            stages.append(structs.replace(given_stage, **changes))
        jobs.append(structs.replace(job, stages=tuple(stages)))
    return Workload(tuple(jobs))


@settings(max_examples=60, deadline=None)
@given(
    workload=demanding(gangs=True),
    seed=st.integers(0, 99),
    decline=st.sampled_from((0.0, 0.3)),
    delay_s=st.sampled_from((0.0, 2.0)),
)
def test_any_decisions_keep_the_rules_and_who_never_declines_finishes(
    workload, seed, decline, delay_s
):
    where = cluster(*CLASSES, move_delay_s=delay_s)
    result = drive(where, workload, RandomDecisions(seed, decline=decline), seed=seed)
    if decline == 0.0:
        assert result.unfinished == 0
        check_timeline(where, workload, result)


SCHEDULERS = ["fifo", "fair", "wfair:leftover=idle", "srpt:cap=useful,leftover=idle"]
SCHEDULERS += ["srpt:source=first", "kshortest:k=1", "cpf", "random", "fair:source=capped"]
SCHEDULERS += [
    "fcfs",
    "sjf:backfill=easy",
    "f1:backfill=conservative",
    "drf",
    "tetris",
    "tetris:srpt=0",
]


@settings(max_examples=60, deadline=None)
@given(workload=demanding(gangs=True), spelled=st.sampled_from(SCHEDULERS))
def test_every_heuristic_finishes_every_workload(workload, spelled):
    where = cluster(*CLASSES, move_delay_s=1.0)
    result = simulate(where, workload, parse_scheduler(spelled), timeline=True)
    check_timeline(where, workload, result)


@settings(max_examples=60, deadline=None)
@given(workload=strategies.workloads(), executors=st.integers(1, 12), seed=st.integers(0, 9))
def test_work_is_all_done_in_one_class_too(workload, executors, seed):
    alone = ExecutorClass(name="all", count=executors)
    where = cluster(alone, move_delay_s=1.0)
    result = drive(where, workload, RandomDecisions(seed), seed=seed)
    assert result.unfinished == 0
    check_timeline(where, workload, result)


# ---------------------------------------------------------------- schedulers that look at sizes
def started(result, at_s=0.0):
    """{executor: job} of the tasks that start then."""
    lines = result.timeline[result.timeline["start_s"] == at_s]
    return dict(zip(lines["executor"].tolist(), lines["job"].tolist(), strict=True))


def simulated(classes, stages, spelled):
    jobs = tuple(Job(id=str(j), arrival_s=0.0, stages=(given,)) for j, given in enumerate(stages))
    where = cluster(*classes)
    return simulate(where, Workload(jobs), parse_scheduler(spelled), timeline=True)


def test_drf_fills_up_from_the_least_dominant_share():
    # Of 10 cores and 10 of memory, every executor is four tenths of the one or of the other.
    wide = ExecutorClass(name="wide", count=2, cores=4, memory=1)
    deep = ExecutorClass(name="deep", count=2, cores=1, memory=4)
    picky, easy = stage("x", [9] * 4, cores=2), stage("y", [9] * 4)
    # Of the wide ones both jobs get one; of the deep ones only the second can use any.
    result = simulated([wide, deep], [picky, easy], "drf")
    assert started(result) == {0: 0, 1: 1, 2: 1, 3: 1} or started(result) == {
        1: 0,
        0: 1,
        2: 1,
        3: 1,
    }


def test_drf_counts_an_executor_by_the_larger_of_its_shares():
    # 8 cores in all: large is half of them, each small one an eighth. When b asks for its share,
    # a has the large one, so the four small ones go to b: 1/2 against 4/8.
    large = ExecutorClass(name="large", count=1, cores=4)
    small = ExecutorClass(name="small", count=4, cores=1)
    result = simulated([large, small], [stage("x", [9] * 9), stage("y", [9] * 9)], "drf")
    by_job = [sum(job == j for job in started(result).values()) for j in (0, 1)]
    assert by_job == [1, 4]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_drf_shares_executors_of_which_some_have_no_limit(order):
    # Of what some have without limit there is no share: executors are counted.
    free, tight = ExecutorClass(name="free", count=8), ExecutorClass(name="t", count=2, memory=4)
    classes = [(free, tight)[k] for k in order]
    result = simulated(classes, [stage("x", [9] * 20), stage("y", [9] * 20)], "drf")
    assert [sum(job == j for job in started(result).values()) for j in (0, 1)] == [5, 5]


def test_tetris_packs_executors_without_limit_as_the_largest():
    # 4 of memory is the largest limit: on an executor without one, y's 16 align better than x's 1.
    free, tight = ExecutorClass(name="free", count=8), ExecutorClass(name="t", count=4, memory=4)
    x, y = stage("x", [5] * 20, memory=1), stage("y", [9] * 20, memory=16)
    result = simulated([free, tight], [x, y], "tetris:srpt=0")
    assert [sum(job == j for job in started(result).values()) for j in (0, 1)] == [4, 8]


def test_without_classes_drf_shares_the_executors():
    workload = Workload(
        tuple(Job(id=str(j), arrival_s=0.0, stages=(stage("x", [9] * 9),)) for j in range(3))
    )
    where = Cluster(executors=6, move_delay_s=0.0)
    result = simulate(where, workload, parse_scheduler("drf"), timeline=True)
    assert sorted(started(result).values()) == [0, 0, 1, 1, 2, 2]


def test_tetris_packs_by_demand_and_prefers_short_jobs_by_its_weight():
    big, tiny = stage("big", [9], memory=16), stage("tiny", [1])
    for weight, first in ((0, 0), (100, 1)):
        result = simulated([LARGE], [big, tiny], f"tetris:srpt={weight}")
        assert started(result) == {0: first}


# ---------------------------------------------------------------- spelling
def test_a_class_is_spelled_by_name_count_and_sizes():
    assert parse_class("small:20:cores=1,memory=4") == ExecutorClass(
        name="small", count=20, cores=1, memory=4
    )
    assert parse_class("any:3") == ExecutorClass(name="any", count=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("small", "expected NAME:COUNT"),
        ("small:x", "expected NAME:COUNT"),
        ("small:2:disk=3", "expected NAME:COUNT or NAME:COUNT:cores=C,memory=M"),
        ("small:2:cores=1,cores=2", "expected NAME"),
        ("small:2:cores=much", "expected NAME"),
        ("small:0", "has 0 executors"),
        ("small:2:cores=-1", "cores is -1"),
        ("small:2:memory=nan", "memory is nan"),
        (":2", "has no name"),
    ],
)
def test_a_class_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(SimulationError, match=message):
        parse_class(text)


def test_a_cluster_of_classes_has_their_executors_and_distinct_names():
    with pytest.raises(SimulationError, match="have 2 executors, the cluster 3"):
        Cluster(executors=3, classes=(SMALL,))
    with pytest.raises(SimulationError, match="several executor classes are called 'small'"):
        Cluster(executors=4, classes=(SMALL, SMALL))
    many = tuple(structs.replace(SMALL, name=str(k)) for k in range(31))
    with pytest.raises(SimulationError, match="there may be 30"):
        Cluster(executors=62, classes=many)


def test_the_same_run_twice_is_the_same():
    jobs = [Job(id=str(j), arrival_s=j, stages=(stage("x", [1, 2], memory=4),)) for j in range(5)]
    runs = [
        simulate(cluster(SMALL, LARGE), Workload(tuple(jobs)), parse_scheduler("random"), seed=3)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].finish_s, runs[1].finish_s)
