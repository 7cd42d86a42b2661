"""Objectives: costs sum to what they stand for, and training for one makes that one small."""

import functools

import msgspec
import numpy as np
import pytest
import strategies
import toys
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.errors import ConfigError
from ganger.evaluation import JobLists
from ganger.evaluation.metrics import dag_slowdown
from ganger.policy.features import JOB_WIDTH, POLICY_GLOBALS, new_rows, write_features
from ganger.policy.layout import initial_vector
from ganger.policy.scheduler import PolicyScheduler
from ganger.simulator import engine
from ganger.simulator.objectives import OBJECTIVES
from ganger.simulator.simulate import Cluster, load_episode, prepare
from ganger.training.actor import Actor
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.objective import training_table
from ganger.workload import FileSource, Job, PerTask, Pool, Stage, SyntheticSource, Workload

WEIGHTS = {"tall": 1.0, "flat": 5.0}
TALL = (  # 40 s of work, all of it one after another
    Stage(id="x", task_count=1, durations=Pool((20.0,))),
    Stage(id="y", task_count=1, durations=Pool((20.0,)), parents=("x",)),
)
FLAT = (Stage(id="x", task_count=4, durations=Pool((11.0,))),)  # 44 s of work, all at once
CHAIN = tuple(
    Stage(id=f"{i}", task_count=1, durations=Pool((8.0,)), parents=(f"{i - 1}",) if i else ())
    for i in range(5)
)
SINGLE = tuple((Stage(id="x", task_count=1, durations=Pool((s,))),) for s in (5.0, 6.0, 7.0, 8.0))


def source(*templates, users=(None,)):
    """A trace that has each template four times, with the user of the same place."""
    jobs = [
        Job(id=f"{i}", arrival_s=float(i), stages=stages, user=users[i % len(users)])
        for i, stages in enumerate(templates * 4)
    ]
    return FileSource("toy", Workload(tuple(jobs)))


TWO_CLASSES = source(TALL, FLAT, users=("tall", "flat"))


def config(objective, **settings):
    weights = WEIGHTS if objective == "weighted" else {}
    return toys.config(**({"objective": objective, "weights": weights} | settings))


# --- costs


def brute_force(state, table, objective):
    """What the jobs that have arrived cost so far, from their own times."""
    clock = state.clock[0]
    jobs = state.jobs[: clock["arrived"]]
    end_s = np.where(np.isnan(jobs["finish_s"]), clock["now"], jobs["finish_s"])
    spent_s = end_s - jobs["arrival_s"]
    weight = table.templates["weight"][jobs["template"]]
    if objective == "makespan":
        over = clock["finished"] == clock["jobs"]
        return (end_s.max() if over else clock["now"]) - jobs["arrival_s"][0]
    each = {"mean": spent_s, "tail": spent_s**2}
    return each.get(objective, weight * spent_s).sum()


@settings(max_examples=40)
@given(
    strategies.workloads(max_size=6),
    st.integers(1, 5),
    st.integers(0, 2**32),
    st.sampled_from(list(OBJECTIVES)),
)
def test_costs_between_decisions_sum_to_the_objective(workload, executors, seed, objective):
    rng = np.random.default_rng(seed)
    episode = prepare(workload)
    table = episode.table
    table.templates["weight"] = rng.random(len(table.templates)) * 9 + 0.1
    state = load_episode(episode, Cluster(executors=executors), seed=0)
    code, total, before = OBJECTIVES[objective], 0.0, 0.0
    while engine.advance(state, table):
        now = engine.cost(state, code)
        assert now >= before
        total, before = total + (now - before), now
        assert total == pytest.approx(brute_force(state, table, objective), rel=1e-9, abs=1e-9)
        stages = [s for s in range(len(state.stages)) if engine.is_schedulable(state, s)]
        active = state.active[: state.clock[0]["active"]]
        stages = [s for s in stages if state.stages[s]["job"] in active]
        engine.decide(state, table, int(rng.choice(stages)), int(rng.integers(1, 9)))
    total += engine.cost(state, code) - before
    assert state.clock[0]["finished"] == len(workload.jobs)
    assert total == pytest.approx(brute_force(state, table, objective), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_recorded_costs_sum_to_what_the_jobs_of_an_episode_cost(objective):
    given = config(objective, environments=4, steps=25, executors=2, interarrival_s=30.0)
    table = training_table(given, TWO_CLASSES)
    actor = Actor(given, table, 0)
    parameters = Parameters(initial_vector(np.random.default_rng(0), False), 0)
    cost, ended = np.zeros(4), 0
    for _ in range(8):
        decisions = actor.act(parameters).samples.decisions
        grid = (4, given.steps + 1)
        costs, done = decisions.cost.reshape(grid), decisions.done.reshape(grid)
        finished = list(decisions.episodes[: decisions.cursor[2]])
        for i in range(4):
            for t in range(given.steps):
                cost[i] += costs[i, t]
                if done[i, t]:
                    mine = next(k for k, e in enumerate(finished) if e["environment"] == i)
                    assert cost[i] == pytest.approx(finished.pop(mine)["cost"], rel=1e-5)
                    cost[i], ended = 0.0, ended + 1
            so_far = brute_force(actor._states[i], table, objective)
            assert cost[i] == pytest.approx(so_far, rel=1e-5, abs=1e-4)
    assert ended > 10


def test_the_makespan_ends_with_the_last_job_though_executors_are_on_their_way():
    """Job a is done at 6 s; the second executor set out for it at 0 and would arrive at 5."""
    stages = (Stage(id="x", task_count=2, durations=Pool((1.0,))),)
    episode = prepare(Workload((Job(id="a", arrival_s=3.0, stages=stages),)))
    state = load_episode(episode, Cluster(executors=3, move_delay_s=5.0), seed=0)
    while engine.advance(state, episode.table):
        (s,) = (s for s in range(1) if engine.is_schedulable(state, s))
        engine.decide(state, episode.table, s, 3)
    assert engine.cost(state, OBJECTIVES["makespan"]) == pytest.approx(6.0)


# --- weights


def test_weights_keep_the_ratios_asked_for_and_their_mean_is_1():
    weights = training_table(config("weighted"), TWO_CLASSES).templates["weight"]
    assert weights.tolist() == pytest.approx([1 / 3, 5 / 3])
    # Critical paths of 40 s and 11 s.
    weights = training_table(config("slowdown"), TWO_CLASSES).templates["weight"]
    assert weights[1] / weights[0] == pytest.approx(40 / 11)
    assert weights.mean() == pytest.approx(1)


def asked(run_s, asked_s):
    """A gang of two, and what was asked for."""
    durations = Pool((run_s,))
    return (Stage(id="x", task_count=2, durations=durations, gang=True, estimated_task_s=asked_s,
                  limit_s=asked_s),)  # fmt: skip


def test_a_batch_job_weighs_by_its_run_time_whatever_was_asked_for():
    """Run times of 20, 40 and 5 s, which counts as 10; two ask for the same, one for nothing."""
    templates = asked(20.0, 3600.0), asked(40.0, 3600.0), asked(5.0, None)
    table = training_table(config("slowdown"), source(*templates))
    assert (table.templates["weight"] * [20, 40, 10]).tolist() == pytest.approx([120 / 7] * 3)
    # What schedulers go by is what was asked for.
    assert table.stages["estimate_s"].tolist() == [3600.0, 3600.0, 5.0]


def test_the_critical_path_is_of_the_mean_durations_of_its_stages():
    """x takes 4 s on average, y 12 s and z 9 s; y and z come after x."""
    stages = (
        Stage(id="x", task_count=2, durations=PerTask((2.0, 6.0)), estimated_task_s=100.0),
        Stage(id="y", task_count=3, durations=Pool((10.0, 14.0)), parents=("x",)),
        Stage(id="z", task_count=1, durations=Pool((9.0,)), parents=("x",), estimated_task_s=50.0),
    )
    table = training_table(config("slowdown"), source(stages, SINGLE[0]))
    assert table.templates["path_s"].tolist() == [16.0, 5.0]
    assert table.templates["weight"][1] / table.templates["weight"][0] == pytest.approx(1.6)


def test_two_jobs_that_ask_alike_look_alike_to_the_policy_whatever_they_weigh():
    given = config("slowdown", executors=4)
    seen = []
    for templates in ((asked(20.0, 900.0),), (asked(500.0, 900.0),)):
        table = training_table(given, source(*templates, CHAIN))
        assert table.templates["weight"][0] != table.templates["weight"][1]
        episode = prepare(Workload((Job(id="a", arrival_s=0.0, stages=templates[0]),)))
        state = load_episode(episode, Cluster(executors=4), seed=0)
        episode.table.templates["weight"] = table.templates["weight"][0]
        assert engine.advance(state, episode.table) == 1
        rows = new_rows(1, 1, 1, 1)
        scratch = np.zeros(1), np.zeros(1)
        no, yes, first = np.bool_(False), np.bool_(True), np.int64(0)
        write_features(state, episode.table, rows, first, no, yes, *scratch)
        seen.append((rows.stages, rows.jobs[:, :JOB_WIDTH], rows.globals[:, :POLICY_GLOBALS]))
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("objective", ["mean", "tail", "makespan"])
def test_other_objectives_weigh_all_jobs_alike(objective):
    assert set(training_table(config(objective), TWO_CLASSES).templates["weight"]) == {1.0}


def test_jobs_shorter_than_10_s_weigh_as_if_they_took_10_s():
    table = training_table(config("slowdown"), source(*SINGLE))
    assert set(table.templates["weight"]) == {1.0}


def test_a_weight_for_somebody_without_jobs_is_refused():
    given = toys.config(objective="weighted", weights={"flatt": 2.0})
    with pytest.raises(ConfigError, match=r"flatt has no job .*; its users are flat, tall"):
        training_table(given, TWO_CLASSES)
    with pytest.raises(ConfigError, match=r"flatt has no job .*; its jobs name no user"):
        training_table(given, SyntheticSource())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "speed"}, "objective is 'speed'; there are mean, weighted, slowdown, tail"),
        ({"objective": "weighted"}, "objective weighted needs weights"),
        ({"objective": "tail", "weights": {"a": 2.0}}, "weights are for objective weighted"),
        ({"objective": "weighted", "weights": {"a": 0.0}}, "weights: a has 0.0; expected more"),
        ({"objective": "weighted", "weights": {"a": float("inf")}}, "weights: a has inf"),
        ({"objective": "weighted", "weights": {"a": float("nan")}}, "weights: a has nan"),
    ],
)
def test_objectives_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**wrong)


# --- learning


def learned(objective, source, **settings):
    """A policy trained for that long enough to be good at the toy; the same every time."""
    discount_time_s = settings.pop("discount_time_s")
    learning = msgspec.structs.replace(
        toys.config().learning,
        discount_time_s=discount_time_s,
        lambda_time_s=0.3 * discount_time_s,
    )
    given = config(objective, learning=learning, environments=16, steps=64, **settings)
    learner, actor = toys.learner(given), Actor(given, training_table(given, source), 0)
    updates = 30
    for update in range(updates):
        parameters = Parameters(learner.policy.vector(), 0)
        learner.update([actor.act(parameters).samples], update / updates)
    return PolicyScheduler(learner.policy.vector())


def figures(policy, source, *, executors, jobs, interarrival_s):
    """What the policy comes to under every objective, over 60 lists."""
    lists = JobLists(
        source,
        cluster=Cluster(executors=executors, move_delay_s=0.0),
        jobs=jobs,
        interarrival_s=interarrival_s,
        seed=5,
        split="train",
        weights=WEIGHTS,
    )
    jct_s = lists.all_jct_s([policy], range(60))[0]
    of_jobs = lists.jobs_of(range(60))
    return {
        "mean": jct_s.mean(),
        "weighted": np.average(jct_s, weights=of_jobs.weight),
        "slowdown": dag_slowdown(jct_s, of_jobs.path_s).mean(),
        "tail": np.sqrt((jct_s**2).mean()),
        "makespan": (of_jobs.arrival_s + jct_s).max(axis=1).mean(),
    }


TWO_CLASSES_QUEUE = {"executors": 1, "jobs": 20, "interarrival_s": 30.0}
BATCH = {"executors": 2, "jobs": 8, "interarrival_s": 0.5}


@functools.cache
def figures_of_two_classes(objective):
    policy = learned(objective, TWO_CLASSES, discount_time_s=1500.0, **TWO_CLASSES_QUEUE)
    return figures(policy, TWO_CLASSES, **TWO_CLASSES_QUEUE)


@pytest.mark.parametrize(
    ("objective", "gain"), [("weighted", 0.2), ("slowdown", 0.2), ("tail", 0.04)]
)
def test_each_objective_moves_its_own_figure_and_the_mean_pays(objective, gain):
    """Two classes of jobs queue for one executor.

    For the mean the one with less work goes first, though the other has the larger weight and the
    shorter path, and waits long.
    """
    mean, own = figures_of_two_classes("mean"), figures_of_two_classes(objective)
    assert own[objective] < (1 - gain) * mean[objective]
    assert mean["mean"] < own["mean"]


def test_for_the_makespan_the_long_chain_goes_first_and_the_mean_pays():
    """Jobs that arrive together: short ones, which the mean wants first, and long chains."""
    source_ = source(CHAIN, *SINGLE)
    mean, own = (
        figures(learned(objective, source_, discount_time_s=300.0, **BATCH), source_, **BATCH)
        for objective in ("mean", "makespan")
    )
    assert own["makespan"] < 0.95 * mean["makespan"]
    assert mean["mean"] < own["mean"]
