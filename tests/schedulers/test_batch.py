"""Batch heuristics: small schedules by hand, and what backfilling must never do."""

import gzip
import math

import numpy as np
import pytest
import strategies
from byhand import gang, job, stage
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check_timeline, drive

from ganger.compiled import JIT
from ganger.schedulers import parse_scheduler
from ganger.schedulers.order import BATCH_ORDERS, score
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, Pool, Stage, Workload

BACKFILLS = ("", ":backfill=easy", ":backfill=conservative")
EVERY_BATCH_RULE = [name + backfill for name in BATCH_ORDERS for backfill in BACKFILLS]
FEW = ["fcfs", "f1", "sjf:backfill=easy", "wfp3:backfill=easy", "fcfs:backfill=conservative"]
FEW += ["saf:backfill=conservative", "unicep:backfill=conservative"]


def starts_s(text, executors, *jobs):
    """When each job starts; a job is (arrival, executors, requested) or also its real time."""
    made = [
        job(
            f"{i}",
            arrival_s,
            gang("g", needs, *(real_s or (asked_s,)), limit_s=asked_s),
        )
        for i, (arrival_s, needs, asked_s, *real_s) in enumerate(jobs)
    ]
    result = simulate(Cluster(executors=executors), Workload(tuple(made)), parse_scheduler(text))
    return result.first_start_s.tolist()


# ---------------------------------------------------------------- by hand
# On 4 executors. a runs from 0 to 10 on 3 of them. b needs all four, so it starts at 10. c and d
# need one each: c for 8 s, till 10 if it starts at 2; d for 20 s.
A, B, C, D = (0, 3, 10), (1, 4, 5), (2, 1, 8), (3, 1, 20)


def test_without_backfilling_nobody_overtakes():
    assert starts_s("fcfs", 4, A, B, C, D) == [0, 10, 15, 15]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_job_that_ends_before_the_first_can_start_overtakes_it(backfill):
    assert starts_s(f"fcfs:backfill={backfill}", 4, A, B, C, D) == [0, 10, 2, 15]


def test_a_job_that_uses_what_the_first_does_not_need_overtakes_it():
    # b needs 3 at 10: one of four is to spare, and d may have it for as long as it likes.
    assert starts_s("fcfs:backfill=easy", 4, A, (1, 3, 5), D) == [0, 10, 3]


def test_easy_may_delay_the_second_and_conservative_does_not():
    # On 4: a has 2 until 10; b needs 3 and is due at 10. c needs 4: due at 15 behind b. d needs 1
    # and asks for 20 s. It leaves b its 3, but c would wait for d till 23.
    jobs = (0, 2, 10), (1, 3, 5), (2, 4, 5), (3, 1, 20)
    assert starts_s("fcfs:backfill=easy", 4, *jobs) == [0, 10, 23, 3]
    assert starts_s("fcfs:backfill=conservative", 4, *jobs) == [0, 10, 15, 20]


def test_requested_times_decide_and_real_ones_do_not():
    # c asks for 9 s, a second too long, though it would take 1 s.
    assert starts_s("fcfs:backfill=easy", 4, A, B, (2, 1, 9, 1)) == [0, 10, 15]
    # a says 10 and takes 4: b is due at 10 when c asks at 2, and starts at 4 (c ends at 3).
    assert starts_s("fcfs:backfill=easy", 4, (0, 3, 10, 4), B, (2, 1, 8, 1)) == [0, 4, 2]


def test_a_gang_that_overruns_its_request_may_end_any_moment():
    # a asked for 3 and takes 10. At 5 it is overdue: b is due at 6, and c may have 1 s, not 2.
    assert starts_s("fcfs:backfill=easy", 4, (0, 3, 3, 10), B, (5, 1, 2)) == [0, 10, 15]
    assert starts_s("fcfs:backfill=easy", 4, (0, 3, 3, 10), B, (5, 1, 1)) == [0, 10, 5]


def test_the_order_holds_in_what_backfilling_takes_too():
    # One executor is free from 2 to 10 beside a. Both could have it; under sjf the shorter one
    # gets it, and from 5 on it is too late for the other, which would end at 13.
    jobs = A, B, (2, 1, 8), (2, 1, 3)
    assert starts_s("fcfs:backfill=easy", 4, *jobs) == [0, 10, 2, 15]
    assert starts_s("sjf:backfill=easy", 4, *jobs)[2:] == [15, 2]


def test_each_order_starts_the_job_that_its_formula_says():
    # All executors are busy until 100, when three jobs wait. Scores are worked out by hand.
    def first(name, *jobs):
        begin = starts_s(name, 4, (0, 4, 100), *jobs)[1:]
        return begin.index(min(begin))

    jobs = (10, 1, 100), (20, 4, 10), (30, 4, 20)  # submitted, executors, requested
    assert first("fcfs", *jobs) == 0
    assert first("sjf", *jobs) == 1
    assert first("ljf", *jobs) == 0
    assert first("saf", *jobs) == 1  # areas 100, 40, 80
    assert first("wfp3", *jobs) == 1  # (90/100)^3 = 0.73; 8^3 x 4 = 2048; 3.5^3 x 4 = 172
    assert first("unicep", *jobs) == 0  # a job of one executor comes first
    assert first("unicep", *jobs[1:]) == 0  # 80 / (2 x 10) = 4; 70 / (2 x 20) = 1.75
    assert first("f1", *jobs) == 0  # 2 + 870 x 1; 4 + 870 x 1.301; 5.2 + 870 x 1.477
    assert first("f3", *jobs) == 0


def test_formulas():
    def of(name, r=100.0, n=4.0, s=1000.0, w=200.0):
        return score(BATCH_ORDERS[name], r, n, s, w)

    assert of("fcfs") == 1000.0
    assert of("sjf") == 100.0 == -of("ljf")
    assert of("saf") == 400.0
    assert of("wfp3") == -32.0  # (200 / 100)^3 x 4
    assert of("unicep") == -1.0  # 200 / (2 x 100)
    assert of("f1") == 2 * 4 + 870 * 3
    assert of("f2") == 10 * 4 + 25600 * 3
    assert of("f3") == 100 * 4 + 6860000 * 3
    assert of("f4") == 100 * 2 + 530000 * 3
    for name in BATCH_ORDERS:
        assert math.isfinite(of(name, r=0.0, n=1.0, s=0.0, w=0.0)), name


# ---------------------------------------------------------------- a real log
def test_a_log_of_28_thousand_jobs_is_run_whole(shared_dir):
    path = shared_dir / "data" / "swf" / "KTH-SP2-1996.swf.gz"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    jobs = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if not line.startswith(";"):
                name, submit_s, _, run_s, _, _, _, processors, asked_s, *_ = line.split()
                one = gang("g", int(processors), float(run_s), limit_s=float(asked_s))
                jobs.append(job(name, float(submit_s), one))
    workload, cluster = Workload(tuple(jobs)), Cluster(executors=100)
    result = simulate(cluster, workload, parse_scheduler("fcfs:backfill=easy"))
    assert result.finished == 28_481
    run_s = result.finish_s - result.first_start_s
    slowdown = np.maximum(result.jct_s / np.maximum(run_s, 10.0), 1.0)
    assert slowdown.mean() == pytest.approx(92.69, abs=0.01)


# ---------------------------------------------------------------- beside jobs of tasks
def test_a_job_of_tasks_waits_its_turn_and_keeps_its_executors():
    # a's gang has 2 of 3 until 10, b's needs 3; the stage of c would take the third for as long as
    # it likes. From 11 on it moves for 2 s.
    jobs = job("a", 0, gang("g", 2, 10.0)), job("b", 1, gang("g", 3, 1.0))
    jobs += (job("c", 2, stage("x", 1.0, 1.0), stage("y", 1.0, after="x")),)
    workload, cluster = Workload(jobs), Cluster(executors=3)
    for text in ("fcfs", "fcfs:backfill=easy", "fcfs:backfill=conservative"):
        result = simulate(cluster, workload, parse_scheduler(text))
        assert result.first_start_s.tolist() == [0, 10, 13], text


def test_a_stage_may_overtake_on_executors_that_no_gang_will_need():
    jobs = job("a", 0, gang("g", 2, 10.0)), job("b", 1, gang("g", 2, 1.0))
    workload = Workload((*jobs, job("c", 2, stage("x", 1.0, 1.0))))
    for text in ("fcfs:backfill=easy", "fcfs:backfill=conservative"):
        result = simulate(Cluster(executors=3), workload, parse_scheduler(text))
        assert result.first_start_s.tolist() == [0, 10, 4], text


@settings(max_examples=60 if JIT else 8)
@given(st.data(), st.integers(1, 6))
def test_every_batch_heuristic_ends_every_mixture_and_keeps_the_rules(data, executors):
    workload, cluster = data.draw(strategies.mixtures(executors)), Cluster(executors=executors)
    for text in EVERY_BATCH_RULE if JIT else FEW:
        result = simulate(cluster, workload, parse_scheduler(text), timeline=True)
        assert result.finished + result.unfinished + result.rejected == result.submitted
        assert result.unfinished == 0, text
        check_timeline(cluster, workload, result)


@settings(max_examples=20 if JIT else 6)
@given(st.data(), st.integers(1, 6))
def test_a_batch_heuristic_decides_the_same_inside_the_engine_and_outside(data, executors):
    class Outside:
        def __init__(self, scheduler):
            self.decide = scheduler.decide

    workload, cluster = data.draw(strategies.mixtures(executors)), Cluster(executors=executors)
    for text in FEW:
        inside = simulate(cluster, workload, parse_scheduler(text))
        outside = simulate(cluster, workload, Outside(parse_scheduler(text)))
        np.testing.assert_array_equal(inside.finish_s, outside.finish_s, err_msg=text)


# ---------------------------------------------------------------- what backfilling must never do
@st.composite
def batch_jobs(draw, executors):
    """Rigid jobs that never run longer than they ask."""
    count = draw(st.integers(2, 9))
    made = []
    for i in range(count):
        asked_s = draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0]))
        real_s = asked_s * draw(st.sampled_from([1.0, 1.0, 0.5, 0.0]))
        one = Stage(
            id="g",
            task_count=draw(st.integers(1, executors)),
            durations=Pool((real_s,)),
            gang=True,
            limit_s=asked_s,
        )
        made.append(Job(id=f"{i}", arrival_s=float(draw(st.integers(0, 6))), stages=(one,)))
    return Workload(tuple(made))


def planned_s(one):
    return max(one.requested_s, 1e-3)


def free_at(observation, extra=()):
    """[(time, free executors from then on)] by requested times; extra: (start, end, executors)."""
    changes = {observation.time_s: observation.on_offer}

    def add(time_s, count):
        changes[time_s] = changes.get(time_s, 0) + count

    for seen in observation.jobs:
        one = seen.stages[0]
        if one.started_s is not None:
            add(one.started_s + planned_s(one), one.tasks)
    for start_s, end_s, count in extra:
        add(start_s, -count)
        add(end_s, count)
    steps, free = [], 0
    for time_s in sorted(changes):
        free += changes[time_s]
        steps.append((time_s, free))
    return steps


def earliest_s(steps, needs, asked_s):
    """The first time from which so many are free for so long."""
    for i, (start_s, _) in enumerate(steps):
        inside = [f for t, f in steps[i + 1 :] if t < start_s + asked_s]
        if min([steps[i][1], *inside]) >= needs:
            return start_s
    raise AssertionError("never")


class WatchPlans:
    """Asks the scheduler, and works out what each decision does to those who came before."""

    def __init__(self, text, *, all_of_them):
        self._scheduler, self._all = parse_scheduler(text), all_of_them
        self.overtook = 0

    def _plan(self, observation, waiting, first):
        """Planned start of each, in order, beside those that run and beside `first`."""
        taken, planned = list(first), {}
        for name, one in waiting:
            start_s = earliest_s(free_at(observation, taken), one.tasks, planned_s(one))
            planned[name] = start_s
            taken.append((start_s, start_s + planned_s(one), one.tasks))
        return planned

    def decide(self, observation):
        decision = self._scheduler.decide(observation)
        now = observation.time_s
        waiting = [(j.id, j.stages[0]) for j in observation.jobs if j.stages[0].launched == 0]
        if decision is None:  # under FCFS the first does not fit then
            assert waiting[0][1].tasks > observation.on_offer
            return decision
        k = [name for name, _ in waiting].index(decision.job)
        chosen = waiting[k][1]
        before = waiting[:k] if self._all else waiting[: min(k, 1)]
        self.overtook += k > 0
        was = self._plan(observation, before, [])
        now_is = self._plan(observation, before, [(now, now + planned_s(chosen), chosen.tasks)])
        for name in was:
            assert now_is[name] <= was[name], f"{decision.job} delays {name}"
        return decision


@pytest.mark.parametrize(("backfill", "all_of_them"), [("easy", False), ("conservative", True)])
def test_a_job_that_overtakes_delays_nobody_who_has_a_reservation(backfill, all_of_them):
    overtook = 0

    @settings(max_examples=150 if JIT else 15)
    @given(st.data(), st.integers(1, 6))
    def check(data, executors):
        nonlocal overtook
        watch = WatchPlans(f"fcfs:backfill={backfill}", all_of_them=all_of_them)
        result = drive(Cluster(executors=executors), data.draw(batch_jobs(executors)), watch)
        assert result.unfinished == 0
        overtook += watch.overtook

    check()
    assert overtook > 0


@settings(max_examples=100 if JIT else 15)
@given(st.data(), st.integers(1, 6))
def test_easy_starts_whoever_may_start(data, executors):
    """It declines only if everybody who fits would delay the first."""

    class Watch(WatchPlans):
        def decide(self, observation):
            decision = super().decide(observation)
            if decision is None:
                (name, first), *others = [
                    (j.id, j.stages[0]) for j in observation.jobs if j.stages[0].launched == 0
                ]
                was = self._plan(observation, [(name, first)], [])[name]
                for _, other in others:
                    if 0 < other.tasks <= observation.on_offer:
                        now = observation.time_s
                        beside = [(now, now + planned_s(other), other.tasks)]
                        assert self._plan(observation, [(name, first)], beside)[name] > was
            return decision

    drive(
        Cluster(executors=executors),
        data.draw(batch_jobs(executors)),
        Watch("fcfs:backfill=easy", all_of_them=False),
    )
