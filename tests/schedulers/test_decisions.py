"""What the heuristics decide: on small cases by hand, and the same in the engine and outside."""

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.compiled import JIT
from ganger.schedulers import parse_scheduler
from ganger.simulator.observation import JobObservation, Observation, StageObservation
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import (
    Job,
    PerTask,
    Pool,
    Stage,
    Workload,
    load_source,
    random_workload,
)

EVERY_RULE = [
    "fifo",
    "fair",
    "fair:source=capped",
    "wfair:alpha=0.5",
    "wfair:alpha=-1,leftover=idle",
    "srpt",
    "srpt:source=first",
    "srpt:cap=const,c=2,leftover=idle",
    "srpt:cap=const,c=1,source=capped,leftover=idle",
    "srpt:cap=sqrt,c=0.3,leftover=idle",
    "srpt:cap=sqrt,source=capped",
    "srpt:cap=useful,a=0.25,source=capped,leftover=idle",
    "srpt:cap=useful,a=1,c=0.01,leftover=idle",
    "cpf",
    "kshortest:k=1",
    "kshortest:k=2",
    "random",
]


class ThroughTheProtocol:
    """Hides that a heuristic is compiled."""

    def __init__(self, scheduler):
        self.decide = scheduler.decide


def job(name, *, tasks, task_s, arrival_s=0.0, stages=1):
    """A chain of equal stages."""
    return Job(
        id=name,
        arrival_s=arrival_s,
        stages=tuple(
            Stage(
                id=f"{k}",
                parents=(f"{k - 1}",) if k else (),
                task_count=tasks,
                durations=Pool((task_s,)),
            )
            for k in range(stages)
        ),
    )


def finish_s(text, jobs, executors, move_delay_s=0.0):
    cluster = Cluster(executors=executors, move_delay_s=move_delay_s)
    result = simulate(cluster, Workload(tuple(jobs)), parse_scheduler(text))
    return result.finish_s.tolist()


# ---------------------------------------------------------------- small cases, by hand
LONG_THEN_SHORT = (job("long", tasks=4, task_s=10.0), job("short", tasks=2, task_s=1.0))


def test_fifo_serves_the_first_job_to_its_end():
    # 2 executors: the long job's 4 tasks take 2 x 10 s; then the short one's two take 1 s.
    assert finish_s("fifo", LONG_THEN_SHORT, 2) == [20.0, 21.0]


def test_fair_gives_every_job_its_share():
    # One executor each: short 2 x 1 s, its executor then joins the long job at 2 s: of 4 tasks,
    # executor 1 takes those that start at 0, 10; executor 2 those that start at 2, 12.
    assert finish_s("fair", LONG_THEN_SHORT, 2) == [22.0, 2.0]


def test_srpt_serves_the_job_with_least_work_first():
    # Both executors run the short job's tasks until 1 s, then the long one's 2 x 10 s.
    assert finish_s("srpt", LONG_THEN_SHORT, 2) == [21.0, 1.0]


def test_leftovers_go_to_the_first_job_beyond_its_cap_or_idle():
    # Two independent stages of 4 tasks, 10 s each, on 3 executors, with a cap of 1.
    stages = tuple(Stage(id=name, task_count=4, durations=Pool((10.0,))) for name in "ab")
    jobs = [Job(id="j", arrival_s=0.0, stages=stages)]
    # One executor runs all 8 tasks, two idle.
    assert finish_s("srpt:cap=const,c=1,leftover=idle", jobs, 3) == [80.0]
    # One executor runs a by the cap, the two left over run b until 20 s, when a has 1 task to go
    # beside the one that just started: a ends at 30 s.
    assert finish_s("srpt:cap=const,c=1,leftover=first", jobs, 3) == [30.0]


def test_the_k_shortest_share():
    # 2 executors, 3 jobs of 2 tasks: 1 s, 2 s and 3 s. The two shorter run side by side: a ends at
    # 2 s; then b (one task left, starts at 2 s) beside c (starts at 2 s): b ends at 4 s, c at 7 s.
    jobs = [job(n, tasks=2, task_s=s) for n, s in (("c", 3.0), ("b", 2.0), ("a", 1.0))]
    c, b, a = finish_s("kshortest:k=2", jobs, 2)
    assert (a, b) == (2.0, 4.0)
    assert c == 7.0


def test_weighted_fair_shares_by_a_power_of_the_work():
    # Work 40 and 10 at alpha 1: shares of 10 executors are 8 and 2.
    observation = observed(
        on_offer=10, jobs=[seen("big", tasks=40, task_s=1.0), seen("small", tasks=10, task_s=1.0)]
    )
    decision = parse_scheduler("wfair:alpha=1").decide(observation)
    assert (decision.job, decision.limit) == ("big", 8)
    # At alpha -1 they are the other way round: 1/40 against 1/10.
    decision = parse_scheduler("wfair:alpha=-1").decide(observation)
    assert (decision.job, decision.limit) == ("big", 2)


def test_the_square_root_cap_grows_with_the_work_left():
    # 100 executor-seconds left: 0.5 x 10 = 5 executors.
    observation = observed(on_offer=10, jobs=[seen("a", tasks=50, task_s=2.0)])
    assert parse_scheduler("srpt:cap=sqrt,c=0.5").decide(observation).limit == 5


def test_useful_parallelism_is_work_over_critical_path():
    # Work 64 s, path 4 s: 16 useful executors. Mixed with the fair share, 4 of 4: sqrt(16 x 4) = 8,
    # but there are only 4; with c = 1/16, sqrt(1 x 4) = 2.
    observation = observed(on_offer=4, executors=4, jobs=[seen("a", tasks=16, task_s=4.0)])
    assert parse_scheduler("srpt:cap=useful,c=1,a=0.5").decide(observation).limit == 4
    assert parse_scheduler("srpt:cap=useful,c=0.0625,a=0.5").decide(observation).limit == 2


def test_a_task_that_runs_counts_as_half_done():
    # Started: 2 x 1 x 0.5 + 2 = 3 executor-seconds, less than the other's 3.5.
    jobs = [
        seen("other", tasks=7, task_s=0.5),
        seen("started", tasks=4, task_s=1.0, launched=2, executors=2),
    ]
    assert parse_scheduler("srpt").decide(observed(on_offer=1, jobs=jobs)).job == "started"


def test_fair_lets_the_source_job_keep_its_executors_and_capped_does_not():
    jobs = [
        seen("a", tasks=9, task_s=1.0, launched=6, executors=6),
        seen("b", tasks=9, task_s=1.0),
    ]
    observation = observed(on_offer=1, jobs=jobs, source_job="a", executors=6)
    assert parse_scheduler("fair").decide(observation).job == "a"
    # Its cap is 3, and it has 5 without the one on offer.
    assert parse_scheduler("fair:source=capped").decide(observation).job == "b"


def test_critical_path_first_starts_the_stage_that_holds_the_job_up_most():
    # a - b - c is 3 s long, d alone 2 s: with one executor, a first.
    def stage(name, parents, task_s):
        return Stage(id=name, parents=parents, task_count=1, durations=PerTask((task_s,)))

    stages = (stage("d", (), 2.0), stage("a", (), 1.0), stage("b", ("a",), 1.0))
    stages += (stage("c", ("b",), 1.0),)
    work = Workload((Job(id="j", arrival_s=0.0, stages=stages),))
    result = simulate(Cluster(executors=1), work, parse_scheduler("cpf"), timeline=True)
    assert [int(line["stage"]) for line in result.timeline] == [1, 0, 2, 3]


def test_random_draws_from_all_jobs_and_all_amounts():
    jobs = [seen("a", tasks=9, task_s=1.0), seen("b", tasks=9, task_s=1.0)]
    seen_decisions = {
        (decision.job, decision.limit)
        for version in range(200)
        for decision in [
            parse_scheduler("random").decide(observed(on_offer=3, jobs=jobs, version=version))
        ]
    }
    assert seen_decisions == {(name, limit) for name in "ab" for limit in (1, 2, 3)}


def test_executors_are_not_all_left_idle_while_a_stage_could_run():
    # A stage of 1 task, then four at once, with a cap of 1: both executors wait in the job's pool
    # when the four become ready, and nobody would be asked again if the cap were the last word.
    head = Stage(id="head", task_count=1, durations=Pool((30.0,)))
    rest = tuple(
        Stage(id=f"{k}", parents=("head",), task_count=1, durations=Pool((0.0,))) for k in range(4)
    )
    jobs = [Job(id="j", arrival_s=0.0, stages=(head, *rest))]
    for source in ("capped", "ordered"):
        text = f"srpt:cap=sqrt,c=0.3,leftover=idle,source={source}"
        assert finish_s(text, jobs, 2) == [30.0]


# ---------------------------------------------------------------- everywhere the same
@pytest.mark.parametrize("text", EVERY_RULE)
def test_a_heuristic_decides_the_same_inside_the_engine_and_through_the_protocol(text):
    workload = random_workload(load_source("synthetic"), jobs=4, interarrival_s=10.0, seed=1)
    assert_same_both_ways(workload, 12, text)


@pytest.mark.uncompiled
@settings(max_examples=25 if JIT else 8)
@given(workload=strategies.workloads(), executors=st.integers(1, 6))
def test_nasty_workloads_too_are_decided_the_same_both_ways(workload, executors):
    for text in EVERY_RULE:
        assert_same_both_ways(workload, executors, text)


@settings(max_examples=150)
@given(workload=strategies.workloads(max_size=9), executors=st.integers(1, 12))
def test_every_heuristic_ends_every_workload(workload, executors):
    for text in EVERY_RULE:
        result = simulate(Cluster(executors=executors), workload, parse_scheduler(text))
        assert result.unfinished == 0


def assert_same_both_ways(workload, executors, text):
    scheduler = parse_scheduler(text)
    cluster = Cluster(executors=executors)
    inside = simulate(cluster, workload, scheduler)
    outside = simulate(cluster, workload, ThroughTheProtocol(scheduler))
    assert inside.decisions == outside.decisions, text
    np.testing.assert_array_equal(inside.finish_s, outside.finish_s, err_msg=text)


def seen(name, *, tasks, task_s, launched=0, executors=0):
    stage = StageObservation(
        id="s",
        parents=(),
        tasks=tasks,
        launched=launched,
        finished=0,
        committed=0,
        moving=0,
        executors=executors,
        estimated_task_s=task_s,
        schedulable=launched < tasks,
    )
    return JobObservation(
        id=name, arrival_s=0.0, executors=executors, supply=executors, stages=(stage,)
    )


def observed(*, on_offer, jobs, executors=10, source_job=None, version=0):
    return Observation(
        version=version,
        time_s=0.0,
        executors=executors,
        on_offer=on_offer,
        source_job=source_job,
        idle=0,
        jobs=tuple(jobs),
    )
