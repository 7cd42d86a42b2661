"""Explanations: they are of what really happened, and say what a policy really looks at."""

import math

import numpy as np
import pytest

from ganger.errors import ConfigError, WorkloadError
from ganger.evaluation.explain import LEVEL_FEATURES, explain, in_units
from ganger.evaluation.habits import Sample, habits_of
from ganger.policy.checkpoint import SavedPolicy, TrainedOn, read_policy
from ganger.policy.features import STAGE_FEATURES
from ganger.policy.forward import weights_of, write_level
from ganger.policy.layout import LEVEL_WIDTH, aligned_zeros, initial_vector, vector_size
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import Fair, Fcfs, Srpt
from ganger.simulator.observation import Decision
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import (
    Demand,
    Job,
    Pool,
    Stage,
    Wave,
    Waves,
    Workload,
    load_source,
    random_workload,
    synthetic_stages,
)
from ganger.workload.classes import ExecutorClass

CLUSTER = Cluster(executors=20)
SYNTHETIC = random_workload(load_source("synthetic"), jobs=10, interarrival_s=15.0, seed=3)


@pytest.fixture(scope="module")
def general():
    return read_policy("general")


def saved(vector, messages=False):
    about = TrainedOn(
        workload="synthetic", executors=20, jobs=10, interarrival_s=15.0, move_delay_s=2.0
    )
    return SavedPolicy(vector, messages, about, 0, None)


def random_policy(messages=False, seed=0):
    vector = aligned_zeros(vector_size(messages))
    vector[:] = initial_vector(np.random.default_rng(seed), messages) * np.float32(2)
    return saved(vector, messages)


def policy_that_sees(block, feature, weight=5.0):
    """Its logits are a multiple of one feature: of stages, or of limits."""
    vector = aligned_zeros(vector_size(False))
    weights = weights_of(vector, False)
    if block == "stage":
        weights.stage_1_stage[feature, 0] = 1
        weights.stage_2[0, 0] = 1
        weights.stage_3[0] = weight
    else:
        weights.limit_2_level[feature, 0] = 1
        weights.limit_3[0] = weight
    return saved(vector)


class Asked:
    """Asks a policy, from Python, and keeps what it was asked and answered."""

    def __init__(self, policy, instead=None):
        self.policy = PolicyScheduler(policy.vector, messages=policy.messages)
        self.instead = instead or {}
        self.seen = []

    def decide(self, observation):
        decision = self.policy.decide(observation)
        self.seen.append((observation, decision))
        return self.instead.get(len(self.seen), decision)


def explained(policy, decision, workload=SYNTHETIC, cluster=CLUSTER, **more):
    found, _ = explain(policy, cluster, workload, decision=decision, **more)
    return found


GANG = Stage(id="g", task_count=3, durations=Pool((5.0,)), gang=True, limit_s=9.0)
AFTER = Stage(id="x", parents=("g",), task_count=4, durations=Pool((1.0, 2.0)))
MIXED = Workload(
    tuple(
        Job(id=str(j), arrival_s=j / 2, stages=(GANG, AFTER) if j % 2 else synthetic_stages(0, j))
        for j in range(6)
    )
)
LARGE = Stage(id="big", task_count=6, durations=Pool((4.0, 5.0)), demand=Demand(cores=4, memory=8))
SMALL = Stage(id="small", parents=("big",), task_count=9, durations=Pool((1.0, 3.0)))
OF_CLASSES = Workload(
    tuple(Job(id=str(j), arrival_s=float(j), stages=(LARGE, SMALL)) for j in range(5))
)
CLASSES = Cluster(
    executors=6,
    classes=(
        ExecutorClass(name="large", count=2, cores=8, memory=16),
        ExecutorClass(name="small", count=4, cores=2, memory=4),
    ),
)

cases = pytest.mark.parametrize(
    ("workload", "cluster", "messages"),
    [
        (SYNTHETIC, CLUSTER, False),
        (SYNTHETIC, CLUSTER, True),
        (MIXED, Cluster(executors=5), False),
        (OF_CLASSES, CLASSES, False),
        (SYNTHETIC, Cluster(executors=20, reconsider=True, work_conserving=True), False),
    ],
    ids=["dag", "messages", "gangs", "classes", "reconsider"],
)


@cases
def test_what_is_explained_is_what_the_simulation_did(workload, cluster, messages):
    policy = random_policy(messages)
    asked = Asked(policy)
    simulate(cluster, workload, asked)
    every = len(asked.seen)
    for number in {1, 2, every // 3, every // 2, every}:
        found = explained(policy, number, workload, cluster)
        observation, decision = asked.seen[number - 1]
        assert (found.job, found.stage, found.limit) == (
            decision.job,
            decision.stage,
            decision.limit,
        )
        assert (found.decision, found.decisions) == (number, every)
        assert (found.time_s, found.on_offer) == (observation.time_s, observation.on_offer)
        assert found.source_job == observation.source_job
        could = {(job.id, stage.id) for job in observation.jobs for stage in job.schedulable}
        assert {(one.job, one.stage) for one in found.stages} == could


@cases
def test_probabilities_sum_to_one_and_the_chosen_ones_are_the_largest(workload, cluster, messages):
    policy = random_policy(messages)
    for number in (1, 7, 20):
        found = explained(policy, number, workload, cluster)
        assert math.fsum(one.probability for one in found.stages) == pytest.approx(1, abs=1e-9)
        assert math.fsum(one.probability for one in found.limits) == pytest.approx(1, abs=1e-9)
        stage = found.stages[0]
        assert (stage.job, stage.stage) == (found.job, found.stage)
        limit = max(found.limits, key=lambda one: one.probability)
        assert limit.limit == found.limit
        assert limit.executors == found.given
        own = found.alternatives[0]
        of_same = [one.probability for one in found.limits if one.executors == found.given]
        assert own.same
        assert own.probability == pytest.approx(stage.probability * math.fsum(of_same))


def test_the_policy_that_comes_with_ganger_can_be_explained(general):
    found = explained(general, 40, workload=SYNTHETIC)
    assert math.fsum(one.probability for one in found.stages) == pytest.approx(1, abs=1e-9)
    assert max(abs(one.stage_change) for one in found.influences) > 0.001
    names = [one.feature for one in found.influences]
    assert len(set(names)) == len(names) == 14 + 22 + 10 + 6


def test_a_time_means_the_first_decision_then_or_later():
    policy = random_policy()
    asked = Asked(policy)
    simulate(CLUSTER, SYNTHETIC, asked)
    times_s = [observation.time_s for observation, _ in asked.seen]
    for at_s in (0.0, times_s[30], times_s[30] + 1e-6, times_s[-1]):
        found, _ = explain(policy, CLUSTER, SYNTHETIC, at_s=at_s)
        assert found.decision == 1 + next(k for k, now in enumerate(times_s) if now >= at_s)


# --- occlusion


@pytest.mark.parametrize("feature", [0, 1, 11])
def test_hiding_what_alone_tells_stages_apart_leaves_all_alike_and_hiding_others_nothing(feature):
    name = STAGE_FEATURES[feature].partition(":")[0]
    found = explained(policy_that_sees("stage", feature), 25)
    (seen,) = (one for one in found.influences if one.feature == f"stage.{name}")
    assert len(found.stages) > 1
    assert found.stages[0].probability > 1.01 / len(found.stages)
    now = found.stages[0].probability + seen.stage_change
    assert now == pytest.approx(1 / len(found.stages), abs=1e-6)
    before, after = found.stages[0].probability, 1 / len(found.stages)
    assert seen.stage_odds_change == pytest.approx(
        math.log(after / (1 - after)) - math.log(before / (1 - before)), abs=1e-4
    )
    others = [one for one in found.influences if one is not seen]
    assert {one.stage_change for one in others} == {0.0}
    assert found.influences[0] is seen


@pytest.mark.parametrize("feature", range(LEVEL_WIDTH))
def test_hiding_what_alone_tells_limits_apart_leaves_all_alike(feature):
    name = LEVEL_FEATURES[feature].partition(":")[0]
    found = explained(policy_that_sees("limit", feature), 25)
    (seen,) = (one for one in found.influences if one.feature == f"limit.{name}")
    (chance,) = (one.probability for one in found.limits if one.limit == found.limit)
    assert len(found.limits) > 1
    assert chance + seen.limit_change == pytest.approx(1 / len(found.limits), abs=1e-6)
    others = [one for one in found.influences if one is not seen]
    assert max(abs(one.limit_change) for one in others) < 1e-6
    assert {one.stage_change for one in found.influences} == {0.0}


def test_what_is_the_same_for_all_candidates_moves_nothing():
    stages = (Stage(id="only", task_count=30, durations=Pool((2.0,))),)
    alike = Workload(tuple(Job(id=str(j), arrival_s=0.0, stages=stages) for j in range(4)))
    found = explained(random_policy(), 1, alike)
    assert len(found.stages) == 4
    same = [one for one in found.influences if one.feature.startswith(("stage.", "job."))]
    assert [one.here == one.neutral for one in same] == [True] * len(same)
    assert {(one.stage_change, one.stage_odds_change) for one in same} == {(0.0, 0.0)}
    assert {one.limit_change for one in same} == {0.0}


def test_one_stage_and_one_limit_are_certain_whatever_is_hidden():
    stages = (Stage(id="only", task_count=1, durations=Pool((2.0,))),)
    found = explained(random_policy(), 1, Workload((Job(id="a", arrival_s=0.0, stages=stages),)))
    assert found.stages[0].probability == found.limits[0].probability == 1.0
    assert {(one.stage_change, one.stage_odds_change) for one in found.influences} == {(0.0, None)}
    assert {(one.limit_change, one.limit_odds_change) for one in found.influences} == {(0.0, None)}


def test_features_are_told_in_the_units_that_their_names_say():
    for number in (10, 40, 80):
        found = explained(random_policy(), number)
        here = {one.feature: one.here for one in found.influences}
        stage, limit = found.stages[0], found.limits
        chosen = next(one for one in limit if one.limit == found.limit)
        expected = {
            "stage.demand": stage.demand,
            "stage.task": stage.task_s,
            "stage.demand_work": stage.task_s * stage.demand,
            "stage.fill": min(stage.demand, found.on_offer),
            "job.work": stage.job_work_s,
            "job.supply": stage.job_supply,
            "job.source": found.source_job == found.job,
            "job.offer": found.on_offer,
            "cluster.jobs": found.jobs,
            "cluster.log_jobs": found.jobs,
            "cluster.size": found.executors,
            "cluster.owned": found.source_job is not None,
            "limit.limit": found.limit,
            "limit.log_limit": found.limit,
            "limit.given": chosen.executors,
            "limit.log_given": chosen.executors,
            "limit.given_share": chosen.executors / found.on_offer,
            "limit.covers": chosen.executors == stage.demand,
        }
        for name, value in expected.items():
            assert here[name] == pytest.approx(float(value), rel=1e-4, abs=1e-5), name


def test_each_feature_of_a_limit_is_what_its_name_says():
    assert len(LEVEL_FEATURES) == LEVEL_WIDTH
    levels = np.array([4, 10, 16] + [0] * 17, np.int32)
    x = np.zeros(LEVEL_WIDTH, np.float32)
    for k, given in ((0, 1), (1, 7), (2, 8)):  # a job that has 3; its stage could use 8, 9 offered
        assert write_level(levels, np.int64(k), np.int32(3), np.int32(8), np.int32(9), 40, x)
        told = []
        for described, value in zip(LEVEL_FEATURES, x.tolist(), strict=True):
            told.append(in_units(described.partition(": ")[2], 40)[1](value))
        level = int(levels[k])
        assert told == pytest.approx(
            [level, level, given, given, given / 9, float(given == 8)], rel=1e-5
        )


def test_units_are_read_from_descriptions():
    for meaning, value, unit, plain in (
        ("log1p(work / (own + 1)) / 4", math.log1p(30) / 4, "work / (own + 1)", 30),
        ("min(demand, on offer) / cluster", 0.25, "min(demand, on offer)", 10),
        ("jobs with less work left / 5", 0.6, "jobs with less work left", 3),
        ("path / the job's longest path", 0.5, "path / the job's longest path", 0.5),
    ):
        told, turned_back = in_units(meaning, 40)
        assert (told, turned_back(value)) == (unit, pytest.approx(plain))


# --- what others would do


@pytest.mark.parametrize("number", [5, 31, 60])
def test_what_follows_is_what_a_simulation_with_that_one_decision_gives(number):
    policy = random_policy()
    found = explained(policy, number, against=(Fair(), Srpt(), Srpt(cap="sqrt", c=0.3)))
    own = simulate(CLUSTER, SYNTHETIC, PolicyScheduler(policy.vector))
    assert found.alternatives[0].mean_jct_s == pytest.approx(own.mean_jct_s, rel=1e-12)
    assert [one.scheduler for one in found.alternatives] == [
        "policy",
        "fair",
        "srpt",
        "srpt:cap=sqrt,c=0.3",
    ]
    for one in found.alternatives[1:]:
        other = Asked(policy, {number: Decision(one.job, one.stage, one.limit)})
        result = simulate(CLUSTER, SYNTHETIC, other)
        assert one.mean_jct_s == pytest.approx(result.mean_jct_s, rel=1e-12)
        assert one.same == (one.mean_jct_s == found.alternatives[0].mean_jct_s)


def test_heuristics_are_asked_in_the_very_state():
    policy = random_policy()
    asked = Asked(policy)
    simulate(CLUSTER, SYNTHETIC, asked)
    for number in (3, 33, 66):
        observation, _ = asked.seen[number - 1]
        for one, scheduler in zip(
            explained(policy, number).alternatives[1:], (Fair(), Srpt()), strict=True
        ):
            decision = scheduler.decide(observation)
            assert (one.job, one.stage, one.limit) == (
                decision.job,
                decision.stage,
                decision.limit,
            )


def test_where_nothing_is_unknown_what_is_known_is_what_will_be():
    def certain(seconds):
        return Waves(levels=(Wave(executors=1, first_s=(seconds,)),))

    jobs = tuple(
        Job(
            id=str(j),
            arrival_s=0.0,
            stages=(
                Stage(id="a", task_count=5 + j, durations=certain(2.0 + j)),
                Stage(id="b", parents=("a",), task_count=3, durations=certain(1.0)),
            ),
        )
        for j in range(4)
    )
    found = explained(random_policy(), 1, Workload(jobs), Cluster(executors=4))
    assert len({one.mean_jct_s for one in found.alternatives}) > 1
    for one in found.alternatives:
        assert one.known_s == pytest.approx(one.mean_jct_s, rel=1e-12)


def test_a_heuristic_that_leaves_executors_idle_says_so():
    policy, frugal = random_policy(), Srpt(cap="const", c=1, leftover="idle", source="capped")
    idle = {}
    for number in range(2, 80, 6):
        one = explained(policy, number, against=(frugal,)).alternatives[1]
        if one.job is None:
            idle[number] = one
    assert len(idle) > 2
    for number, one in idle.items():
        assert (one.stage, one.limit, one.executors, one.probability) == (None, None, 0, 0.0)
        assert not one.same
        assert one.known_s > 0
        result = simulate(CLUSTER, SYNTHETIC, Asked(policy, {number: None}))
        assert one.mean_jct_s == pytest.approx(result.mean_jct_s, rel=1e-12)


def test_batch_heuristics_are_asked_as_well():
    alternatives = explained(random_policy(), 3, MIXED, Cluster(executors=5), against=(Fcfs(),))
    assert alternatives.alternatives[1].scheduler == "fcfs"
    assert alternatives.alternatives[1].mean_jct_s > 0


def test_explaining_changes_neither_the_policy_nor_what_comes_after():
    policy = random_policy()
    before = policy.vector.copy()
    first = explained(policy, 20)
    assert explained(policy, 20) == first
    np.testing.assert_array_equal(policy.vector, before)


# --- habits


def test_habits_are_counted_over_all_decisions():
    policy = random_policy()
    asked = Asked(policy)
    simulate(CLUSTER, SYNTHETIC, asked)
    nothing, habits = explain(policy, CLUSTER, SYNTHETIC)
    assert nothing is None
    assert habits.decisions == len(asked.seen) == sum(map(sum, habits.count))
    several = [
        (observation, decision)
        for observation, decision in asked.seen
        if sum(bool(job.schedulable) for job in observation.jobs) > 1
    ]
    shortest = [
        min(job.remaining_work_s for job in observation.jobs if job.schedulable)
        == next(job.remaining_work_s for job in observation.jobs if job.id == decision.job)
        for observation, decision in several
    ]
    assert habits.shortest == pytest.approx(np.mean(shortest))
    got_all = []
    for observation, decision in asked.seen:
        job = next(job for job in observation.jobs if job.id == decision.job)
        stage = next(stage for stage in job.stages if stage.id == decision.stage)
        own = job.supply - (observation.on_offer if observation.source_job == job.id else 0)
        could_use = min(stage.demand, observation.on_offer)
        got_all.append(decision.limit - own >= could_use or could_use == 1)
    assert habits.all_of_use == pytest.approx(np.mean(got_all))
    assert 0 < habits.all_of_use < 1
    of_one = [d.limit for o, d in asked.seen if o.on_offer == 1]
    assert habits.on_offer[0] == "1"
    assert habits.limit_by_offer[0] == pytest.approx(np.mean(of_one))
    assert f"{habits.decisions:,} decisions" in habits.paragraph()


def test_a_table_of_habits_by_hand():
    def sample(work_s, on_offer, limit, **more):
        about = {"given": 1, "could_use": on_offer, "jobs": 2, "least_work": True}
        about |= {"could_stay": False, "stays": False}
        return Sample(work_s=work_s, on_offer=on_offer, limit=limit, **(about | more))

    habits = habits_of(
        [
            sample(5.0, 1, 2),
            sample(50.0, 1, 4, least_work=False),
            sample(500.0, 3, 6, could_stay=True, stays=True),
            sample(500.0, 2, 8, could_stay=True),
            sample(700.0, 9, 10, jobs=1, least_work=True),
        ],
        10,
    )
    assert habits.work == ("less than 100", "100 to 1,000")
    assert habits.on_offer == ("1", "2 to 3", "8 to 10")
    assert habits.count == ((2, 0, 0), (0, 2, 1))
    assert habits.mean_limit == ((3.0, None, None), (None, 7.0, 10.0))
    assert habits.mean_given == ((1.0, None, None), (None, 1.0, 1.0))
    assert habits.limit_by_work == (3.0, 8.0)
    assert habits.limit_by_offer == (3.0, 7.0, 10.0)
    assert habits.shortest == 0.75
    assert habits.stays == 0.5
    assert habits.all_of_use == 0.4
    assert "rises from 3.0 (less than 100) to 8.0 (100 to 1,000" in habits.paragraph()


# --- what cannot be explained


def test_what_cannot_be_explained_is_said():
    policy = random_policy()
    every = explained(policy, 1).decisions
    for number in (0, -3, every + 1):
        with pytest.raises(ConfigError, match=rf"no decision {number}; expected 1 to {every}"):
            explained(policy, number)
    with pytest.raises(ConfigError, match=rf"at 1e\+09 s or later; the last of {every} is at "):
        explain(policy, CLUSTER, SYNTHETIC, at_s=1e9)
    with pytest.raises(ConfigError, match="not both"):
        explain(policy, CLUSTER, SYNTHETIC, decision=1, at_s=1.0)
    with pytest.raises(WorkloadError, match="can never run on 2 executors"):
        explain(policy, Cluster(executors=2), MIXED, decision=1)
