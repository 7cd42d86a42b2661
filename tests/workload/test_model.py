import itertools
import math
import time

import pytest
import strategies
from hypothesis import given

from ganger.errors import WorkloadError
from ganger.workload import (
    Demand,
    Job,
    PerTask,
    Pool,
    Stage,
    Wave,
    Waves,
    Workload,
    task_estimate_s,
    topological_order,
    work_s,
)


def stage(id="a", parents=(), task_count=1, durations=None, estimated_task_s=None, **more):
    return Stage(
        id=id,
        parents=tuple(parents),
        task_count=task_count,
        durations=Pool((1.0,)) if durations is None else durations,
        estimated_task_s=estimated_task_s,
        **more,
    )


def job(*stages, id="x", arrival_s=0.0):
    return Job(id=id, arrival_s=arrival_s, stages=stages)


def level(executors, *, fresh=(), first=(), rest=()):
    return Wave(executors=executors, fresh_s=fresh, first_s=first, rest_s=rest)


INVALID = {
    "no stage": (job(), "job 'x': stages is empty"),
    "duplicate stage": (job(stage(), stage()), "job 'x': stages: id 'a' is used twice"),
    "unknown parent": (job(stage(parents="b")), "stage 'a': parents: 'b' is no stage"),
    "parent twice": (
        job(stage(), stage("b", ("a", "a"))),
        "stage 'b': parents names a stage twice",
    ),
    "own parent": (job(stage(parents="a")), "parents: stages wait for each other: 'a' needs 'a'"),
    "cycle": (
        job(stage("r"), stage("a", ("r", "c")), stage("b", "a"), stage("c", "b"), stage("d", "c")),
        "'a' needs 'c' needs 'b' needs 'a'",
    ),
    "no task": (job(stage(task_count=0)), "stage 'a': task_count is 0; expected 1 to"),
    "too many tasks": (job(stage(task_count=2**31)), "task_count is 2147483648"),
    "negative arrival": (job(stage(), arrival_s=-1.0), "job 'x': arrival_s is -1.0; expected"),
    "NaN arrival": (job(stage(), arrival_s=math.nan), "arrival_s is nan"),
    "infinite arrival": (job(stage(), arrival_s=math.inf), "arrival_s is inf"),
    "empty pool": (job(stage(durations=Pool(()))), "durations.values_s is empty"),
    "negative duration": (
        job(stage(durations=Pool((1.0, -0.5)))),
        "stage 'a': durations.values_s[1] is -0.5; expected",
    ),
    "NaN duration": (job(stage(durations=Pool((1.0, math.nan)))), "values_s[1] is nan"),
    "NaN first": (job(stage(durations=Pool((math.nan, 1.0)))), "values_s[0] is nan"),
    "infinite duration": (job(stage(durations=PerTask((math.inf,)))), "values_s[0] is inf"),
    "wrong number of values": (
        job(stage(task_count=3, durations=PerTask((1.0, 2.0)))),
        "values_s has 2 values for 3 tasks",
    ),
    "no levels": (job(stage(durations=Waves(levels=()))), "durations holds no values"),
    "no values": (job(stage(durations=Waves(levels=(level(5),)))), "durations holds no values"),
    "levels not ascending": (
        job(stage(durations=Waves(levels=(level(5, rest=(1.0,)), level(5))))),
        "durations.levels[1].executors is 5; expected levels to ascend",
    ),
    "level 0": (job(stage(durations=Waves(levels=(level(0, rest=(1.0,)),)))), "executors is 0"),
    "bad wave value": (
        job(stage(durations=Waves(levels=(level(5, rest=(1.0, math.nan)),)))),
        "durations.levels[0].rest_s[1] is nan",
    ),
    "negative warm-up": (
        job(stage(durations=Waves(levels=(level(5, rest=(1.0,)),), warmup_s=-1.0))),
        "durations.warmup_s is -1.0",
    ),
    "unknown interpolation": (
        job(stage(durations=Waves(levels=(level(5, rest=(1.0,)),), interpolation="cubic"))),
        "durations.interpolation is 'cubic'",
    ),
    "negative limit": (job(stage(limit_s=-1.0)), "limit_s is -1.0"),
    "gang of measured tasks": (
        job(stage(gang=True, durations=PerTask((1.0,)))),
        "durations is a PerTask; expected a Pool",
    ),
    "negative demand": (job(stage(demand=Demand(cores=-1.0))), "demand.cores is -1.0"),
    "NaN demanded": (job(stage(demand=Demand(memory=float("nan")))), "demand.memory is nan"),
    "negative estimate": (job(stage(estimated_task_s=-1.0)), "estimated_task_s is -1.0"),
    "no durations": (job(stage(durations=(1.0,))), "durations is a tuple; expected PerTask"),
}


@pytest.mark.parametrize(("wrong", "message"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_job_is_refused_by_job_and_field(wrong, message):
    good = job(stage(), id="good")
    with pytest.raises(WorkloadError) as caught:
        Workload((good, wrong))
    assert message in str(caught.value)
    assert "'x'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_jobs_of_one_id_are_refused():
    with pytest.raises(WorkloadError, match="job 'x': id is used by another job"):
        Workload((job(stage()), job(stage(), arrival_s=1.0)))


def test_zero_durations_and_zero_arrivals_are_legal():
    Workload((job(stage(durations=PerTask((0.0,)))),))


def test_jobs_are_sorted_by_arrival_and_ties_keep_their_order():
    arrivals = {"a": 3.0, "b": 1.0, "c": 3.0, "d": 0.0, "e": 1.0}
    workload = Workload(tuple(job(stage(), id=i, arrival_s=t) for i, t in arrivals.items()))
    assert [job.id for job in workload.jobs] == ["d", "b", "e", "a", "c"]


def test_topological_order_is_the_listed_one_where_that_is_possible():
    assert topological_order((stage("a"), stage("b"), stage("c", "a"))) == (0, 1, 2)
    # c waits for a, which is listed last; b is free at once.
    assert topological_order((stage("c", "a"), stage("b"), stage("a"))) == (1, 2, 0)


@given(strategies.stages())
def test_topological_order_puts_parents_first(stages):
    order = topological_order(stages)
    assert sorted(order) == list(range(len(stages)))
    place = {stages[index].id: position for position, index in enumerate(order)}
    assert all(place[p] < place[stage.id] for stage in stages for p in stage.parents)


def test_an_estimate_is_what_is_given_or_the_mean_of_all_values():
    assert task_estimate_s(stage(durations=Pool((1.0, 2.0)), estimated_task_s=9.0)) == 9.0
    assert task_estimate_s(stage(durations=Pool((1.0, 2.0)))) == 1.5
    waves = Waves(levels=(level(5, fresh=(4.0,), first=(2.0,)), level(10, rest=(1.0, 1.0))))
    assert task_estimate_s(stage(durations=waves)) == 2.0


def test_work_is_tasks_times_their_estimates():
    stages = (stage(task_count=3, durations=Pool((1.0, 3.0))), stage("b", estimated_task_s=0.5))
    assert work_s(stages) == 6.5


@pytest.mark.parametrize("backwards", [False, True])
def test_ten_thousand_stages_wide_or_deep_are_checked_without_recursion(backwards):
    count = 10_000
    ids = [str(i) for i in range(count)]
    fan_out = [stage("0")] + [stage(i, ("0",)) for i in ids[1:]]
    fan_in = [stage(i) for i in ids[:-1]] + [stage("end", ids[:-1])]
    chain = [stage("0")] + [stage(child, (parent,)) for parent, child in itertools.pairwise(ids)]
    for stages in (fan_out, fan_in, chain):
        listed = tuple(reversed(stages)) if backwards else tuple(stages)
        Workload((job(*listed),))
        assert len(topological_order(listed)) == count
    ring = [stage("0", (ids[-1],)), *chain[1:]]
    with pytest.raises(WorkloadError, match=r"9995 more") as caught:
        Workload((job(*ring),))
    assert len(str(caught.value)) < 300


def test_a_hundred_thousand_jobs_are_checked_in_seconds():
    stages = tuple(stage(str(i), (str(i - 1),) if i else ()) for i in range(9))
    begin = time.process_time()
    Workload(tuple(job(*stages, id=str(i), arrival_s=float(i)) for i in range(100_000)))
    assert time.process_time() - begin < 20  # 3 s on a quiet machine


def test_stages_shared_by_jobs_are_checked_once():
    stages = tuple(stage(str(i), durations=Pool((1.0,) * 1000)) for i in range(100))
    begin = time.process_time()
    Workload(tuple(Job(id=str(i), arrival_s=0.0, stages=stages) for i in range(20_000)))
    assert time.process_time() - begin < 5  # 0.05 s; 20,000 checks would take a minute
