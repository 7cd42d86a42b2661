"""Rounds outside the simulator are the simulator's: what is left on offer, and who may get it."""

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import RandomDecisions, drive
from msgspec.structs import replace

from ganger.errors import SchedulerError
from ganger.schedulers import Fair
from ganger.serving.asking import SMALL
from ganger.serving.rounds import after, amount, decide_round, executors_given, problem_with
from ganger.simulator.observation import Decision
from ganger.simulator.simulate import Cluster


def test_what_is_left_of_a_round_is_what_the_simulator_asks_about_next():
    compared = 0

    @settings(max_examples=60)
    @given(st.data(), st.integers(1, 9), st.integers(0, 2**32))
    def check(data, executors, seed):
        nonlocal compared
        workload = data.draw(strategies.workloads(max_size=4) | strategies.mixtures(executors))
        scheduler = Watching(RandomDecisions(seed))
        drive(Cluster(executors=executors), workload, scheduler)
        for (before, decision), (following, _) in zip(
            scheduler.asked, scheduler.asked[1:], strict=False
        ):
            left = after(before, decision)
            assert left.on_offer == before.on_offer - amount(before, decision)
            if left.on_offer > 0 and any(job.schedulable for job in left.jobs):
                assert left == following
                compared += 1

    check()
    assert compared > 20, "the rounds drawn were too short to tell"


class Watching:
    def __init__(self, scheduler):
        self.scheduler, self.asked = scheduler, []

    def decide(self, observation):
        decision = self.scheduler.decide(observation)
        self.asked.append((observation, decision))
        return decision


def test_a_round_goes_on_until_nobody_is_on_offer():
    decisions = decide_round(
        lambda seen: Decision("a" if seen.version == 0 else "b", "0", 1), SMALL
    )
    assert [decision.job for decision in decisions] == ["a", "b"]
    assert executors_given(SMALL, decisions) == [1, 1]


def test_a_round_ends_when_the_scheduler_declines():
    assert decide_round(lambda seen: None, SMALL) == []


def test_a_limit_counts_what_the_job_has():
    held = replace(SMALL, jobs=(replace(SMALL.jobs[0], supply=1, executors=1), SMALL.jobs[1]))
    assert amount(held, Decision("a", "0", 2)) == 1
    assert amount(replace(held, source_job="a"), Decision("a", "0", 3)) == 2


def test_a_gang_gets_all_it_asks_for_and_then_the_others_no_longer_fit():
    gang = replace(SMALL.jobs[0].stages[0], tasks=2, gang=True)
    seen = replace(SMALL, jobs=tuple(replace(job, stages=(gang,)) for job in SMALL.jobs))
    left = after(seen, Decision("a", "0", 1))
    assert left.on_offer == 0 and left.idle == SMALL.idle - 2
    assert left.jobs[0].stages[0].launched == 2
    assert not left.jobs[1].schedulable


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision("a", "0", 0), "limit is 0"),
        (Decision("a", "0", True), "limit is True"),
        (Decision("a", "0", 1.5), "limit is 1.5"),
        (Decision("b", "1", 1), "stage '1' of job 'b' cannot be chosen; there are '0' of 'a'"),
        ("a", "a str; expected a Decision"),
    ],
)
def test_an_answer_that_must_not_be_given_is_refused(decision, said):
    assert said in problem_with(SMALL, decision)
    with pytest.raises(SchedulerError, match=r"expected|cannot"):
        decide_round(lambda seen: decision, SMALL)


def test_more_than_is_on_offer_cannot_be_given():
    twice = [Decision("a", "0", 4), Decision("b", "0", 4)]
    with pytest.raises(SchedulerError, match="none is left on offer"):
        executors_given(SMALL, twice)


def test_heuristics_decide_the_small_round():
    assert executors_given(SMALL, decide_round(Fair().decide, SMALL)) == [2]
