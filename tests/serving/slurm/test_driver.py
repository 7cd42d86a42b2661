"""The driver against a job table: what it does, what it leaves alone, and what may go wrong."""

import random
import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.slurm.fake import FakeSlurm

from ganger.errors import ConfigError
from ganger.serving.checking import check_observation
from ganger.serving.estimates import Estimates
from ganger.serving.guard import Answer
from ganger.serving.metrics import Metrics
from ganger.serving.records import Records
from ganger.serving.rounds import decide_round, executors_given
from ganger.serving.slurm.acting import give_back
from ganger.serving.slurm.client import SlurmError, check_partition
from ganger.serving.slurm.driver import Driver, SlurmConfig
from ganger.serving.slurm.loop import Loop
from ganger.simulator.observation import Decision
from ganger.workload.native import read_workload


class Shortest:
    """All that is on offer to the job with the least work left."""

    def decide(self, observation):
        choices = [(job.remaining_work_s, job) for job in observation.jobs if job.schedulable]
        if not choices:
            return None
        _, job = min(choices, key=lambda choice: choice[0])
        return Decision(job.id, job.schedulable[0].id, job.supply + observation.on_offer)


class Declines:
    def decide(self, observation):
        return None


class Asked:
    """A guard without a process."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.rounds = 0

    def decide(self, observation):
        check_observation(observation)
        self.rounds += 1
        decisions = tuple(decide_round(self.scheduler.decide, observation))
        return Answer(
            version=observation.version, decisions=decisions,
            executors=tuple(executors_given(observation, decisions)), scheduler="test",
            latency_s=0.0,
        )  # fmt: skip


class Told:
    """A guardian that remembers."""

    def tell(self, drives):
        self.drives = drives


class Driven:
    """A fake Slurm and a driver's loop on it."""

    def __init__(self, slurm=None, scheduler=None, *, dry_run=False, records=None, **config):
        self.slurm = slurm or FakeSlurm()
        self.config = SlurmConfig(**{"interval_s": 0.2} | config)
        self.counts, self.said, self.shown = Counter(), [], []
        self.estimates = Estimates()
        self.guardian = Told()
        self.driver = Driver(
            self.slurm, "toy", self.config, self.estimates, dry_run=dry_run,
            guardian=self.guardian, count=lambda kind: self.counts.update([kind]),
            say=self.said.append, show=self.shown.append, clock=lambda: self.slurm.now_s,
        )  # fmt: skip
        self.guard = Asked(scheduler or Shortest())
        self.metrics = Metrics()
        outcome = "shadow" if self.config.shadow else "dry-run" if dry_run else "acted"
        self.loop = Loop(
            self.driver, self.config, self.guard, self.estimates, self.metrics,
            records or Records(None), outcome=outcome, say=self.said.append,
        )  # fmt: skip

    def run(self, seconds):
        """Look at it every 0.2 s."""
        for _ in range(round(seconds / 0.2)):
            self.loop.step()
            self.slurm.pass_time(0.2)

    def until_done(self, *jobs, most=200.0):
        for _ in range(round(most)):
            if all(self.slurm.finished(job) is not None for job in jobs):
                return
            self.run(1.0)
        raise AssertionError(f"not done: {[self.slurm.job(job) for job in jobs]}")


def test_shortest_first_and_nothing_is_left():
    driven = Driven()
    long = driven.slurm.submit("long", 40)
    short = driven.slurm.submit("short", 4)
    middle = driven.slurm.submit("middle", 12)
    driven.until_done(long, short, middle)
    finish = driven.slurm.finished
    assert finish(short) < finish(middle) < finish(long)
    driven.run(1)
    assert (
        not driven.driver.book.stages and driven.metrics.figures()["ganger_jct_seconds_count"] == 3
    )


def test_a_short_job_passes_a_long_one_that_has_all_executors():
    driven = Driven()
    long = driven.slurm.submit("long", 80)
    driven.run(2.5)
    short = driven.slurm.submit("short", 8)
    driven.until_done(short)
    assert driven.slurm.finished(short) - driven.slurm.job(short).submit_s < 3.0
    driven.until_done(long)


def test_no_more_run_than_were_given_executors():
    class Three:
        def decide(self, observation):
            for job in observation.jobs:
                if job.schedulable and job.supply < 3:
                    return Decision(job.id, job.schedulable[0].id, 3)
            return None

    driven = Driven(FakeSlurm(nodes=3), Three())
    jobs = [driven.slurm.submit(name, 10) for name in "abc"]
    driven.until_done(*jobs)
    assert [driven.slurm.most_together[job] for job in jobs] == [3, 3, 3]


def test_a_throttle_of_the_users_own_holds_and_comes_back():
    driven = Driven()
    job = driven.slurm.submit("a", 20, throttle=2)
    driven.run(1)
    assert driven.slurm.most_together[job] == 2 and driven.slurm.job(job).throttle == 2
    other = driven.slurm.submit("b", 30, throttle=7)
    driven.run(1.5)
    assert driven.slurm.job(other).throttle == 6
    driven.driver.give_back()
    assert driven.slurm.job(other).throttle == 7
    driven.slurm.pass_time(40)
    assert driven.slurm.finished(job) and driven.slurm.finished(other)


def test_what_did_not_opt_in_is_never_touched():
    driven = Driven()
    driven.slurm.submit("plain", 4, held=False, comment="")
    driven.slurm.submit("held", 4, comment="")
    driven.slurm.submit("similar", 4, comment="gangerous")
    driven.slurm.submit("not held", 4, held=False)
    ours = driven.slurm.submit("ours", 8)
    driven.until_done(ours)
    driven.driver.give_back()
    touched = {int("".join(c for c in words[1] if c.isdigit())) for words in driven.slurm.commands}
    assert touched == {ours}


def test_other_jobs_go_first():
    driven = Driven()
    ours = driven.slurm.submit("ours", 8)
    driven.slurm.submit("theirs", 6, 5.0, held=False, comment="")
    observation = driven.driver.observe()
    assert observation.on_offer == 2 and observation.executors == 8
    driven.driver.act(decide_round(Shortest().decide, observation), observation.version)
    driven.slurm.pass_time(1)
    assert driven.slurm.most_together[ours] == 2
    assert driven.driver.observe().executors == 2, "theirs are not ours to decide about"


def test_a_job_of_theirs_that_is_too_wide_for_now_stops_nobody():
    driven = Driven()
    driven.slurm.submit("now", 6, 5.0, held=False, comment="")
    driven.slurm.pass_time(0.1)
    driven.slurm.submit("wide", None, 5.0, held=False, comment="", cpus=8)
    driven.slurm.submit("ours", 8)
    assert driven.driver.observe().on_offer == 2


def test_with_adopt_marked_jobs_that_are_not_held_are_taken_up():
    driven = Driven(adopt=True)
    job = driven.slurm.submit("a", 30, held=False)
    driven.slurm.pass_time(0.1)
    short = driven.slurm.submit("b", 4)
    driven.until_done(job, short)
    assert driven.slurm.finished(short) < driven.slurm.finished(job)


def test_dependencies_make_a_job():
    driven = Driven()
    submit = driven.slurm.submit
    a = submit("a", 4)
    b = submit("b", 4, after=(a,))
    c = submit("c", 2, after=(a,))
    d = submit("d", 1, after=(b, c))
    other = submit("other", 2, user="bob", after=(a,))
    same = submit("x", 3, comment="ganger:job=report")
    too = submit("y", 3, comment="ganger:job=report")
    jobs = {job.id: job for job in driven.driver.observe().jobs}
    assert set(jobs) == {f"{a} a", f"{other} other", f"{same} report"}
    first = jobs[f"{a} a"]
    assert [stage.id for stage in first.stages] == [f"{a} a", f"{b} b", f"{c} c", f"{d} d"]
    assert first.stages[3].parents == (f"{b} b", f"{c} c")
    assert [stage.schedulable for stage in first.stages] == [True, False, False, False]
    assert not jobs[f"{other} other"].schedulable
    assert len(jobs[f"{same} report"].schedulable) == 2
    driven.until_done(a, b, c, d, other, same, too)
    driven.run(1)
    assert not driven.driver.book.stages


def test_no_executor_waits_for_a_stage_that_cannot_start():
    driven = Driven()
    a = driven.slurm.submit("a", 2, 5.0)
    driven.slurm.submit("b", 4, after=(a,))
    driven.run(1)
    seen = driven.driver.observe()
    assert seen.on_offer == 6 and not any(job.schedulable for job in seen.jobs)


def test_parents_that_slurm_has_forgotten_are_not():
    driven = Driven()
    a = driven.slurm.submit("a", 4)
    b = driven.slurm.submit("b", 4, 3.0, after=(a,))
    driven.slurm.forget_all()
    driven.run(3.0)
    (job,) = driven.driver.observe().jobs
    assert job.id == f"{a} a" and job.stages[0].finished == 4
    driven.until_done(b)


def test_a_single_job_that_needs_several_cpus_is_a_gang():
    driven = Driven(FakeSlurm(nodes=1, cpus=8))
    wide = driven.slurm.submit("wide", None, 2.0, cpus=6)
    (job,) = driven.driver.observe().jobs
    (stage,) = job.stages
    assert stage.gang and stage.tasks == 6 and stage.schedulable
    narrow = driven.slurm.submit("narrow", 2, 2.0)
    driven.run(1.0)
    seen = driven.driver.observe()
    assert seen.jobs[0].executors == 6 and seen.jobs[0].stages[0].started_s is not None
    driven.until_done(wide, narrow)


def test_an_array_of_wide_tasks_is_released_and_left():
    driven = Driven()
    wide = driven.slurm.submit("wide", 2, cpus=2)
    driven.run(3)
    assert driven.slurm.finished(wide) and driven.counts["unfit"] == 1
    assert "needs" in driven.said[0] or "need 2 CPUs" in driven.said[0]
    assert driven.slurm.commands == [("release", str(wide))]
    larger = Driven(FakeSlurm(), executor_cpus=2)
    wide = larger.slurm.submit("wide", 6, cpus=2)
    assert larger.driver.observe().on_offer == 4
    larger.until_done(wide)


def test_acting_twice_is_acting_once_and_what_is_stale_is_dropped():
    driven = Driven()
    driven.slurm.submit("a", 8)
    observation = driven.driver.observe()
    decisions = decide_round(Shortest().decide, observation)
    assert not driven.driver.act(decisions, observation.version - 1)
    assert driven.counts["stale"] == 1 and not driven.slurm.commands
    assert driven.driver.act(decisions, observation.version)
    once = list(driven.slurm.commands)
    assert driven.driver.act(decisions, observation.version)
    assert driven.slurm.job(1).throttle == 8
    assert set(driven.slurm.commands) == set(once)
    del driven.slurm.commands[len(once) :]
    observation = driven.driver.observe()
    assert observation.on_offer == 0
    driven.driver.act((), observation.version)
    assert (
        driven.slurm.commands
        == once
        == [
            ("update", "JobId=1", "ArrayTaskThrottle=8"),
            ("release", "1"),
            ("update", "JobId=1", "Priority=1000"),
        ]
    )


def test_a_job_that_its_user_released_or_unmarked_is_theirs():
    driven = Driven(scheduler=Declines(), stall_s=1e9)
    released = driven.slurm.submit("released", 4)
    unmarked = driven.slurm.submit("unmarked", 4)
    driven.run(1)
    driven.slurm.scontrol("release", str(released))
    driven.slurm.job(unmarked).comment = ""
    driven.run(4)
    assert driven.counts["left"] == 2
    assert driven.slurm.finished(released) and driven.slurm.finished(unmarked)
    driven.slurm.commands.clear()
    driven.run(1)
    assert not driven.slurm.commands


def test_a_job_that_an_operator_holds_stays_held():
    driven = Driven()
    job = driven.slurm.submit("a", 20)
    driven.run(1)
    driven.slurm.scontrol("uhold", str(job))
    driven.slurm.job(job).reason = "JobHeldAdmin"
    driven.run(3)
    driven.driver.give_back()
    assert driven.slurm.job(job).priority == 0 and driven.slurm.job(job).throttle == 0
    driven.slurm.scontrol("release", str(job))
    driven.until_done(job)
    assert not driven.counts["left"]


def test_tasks_that_others_hold_stay_held_and_the_rest_goes_on():
    driven = Driven()
    job = driven.slurm.submit("a", 20)
    driven.slurm.job(job).theirs = {2, 3, 7}
    driven.run(6)
    assert driven.slurm.job(job).waiting == {2, 3, 7}
    driven.driver.give_back()
    assert driven.slurm.job(job).theirs == {2, 3, 7}
    assert ("release", f"{job}_[0-1,4-6,8-19]") in driven.slurm.commands
    driven.slurm.job(job).theirs.clear()
    driven.until_done(job)


@pytest.mark.parametrize("held", [True, False])
def test_a_slurmctld_that_lost_its_last_seconds_loses_no_job(held):
    """It comes back with jobs held that were released, or the other way round."""
    driven = Driven(scheduler=Declines() if not held else None, stall_s=1e9)
    jobs = [driven.slurm.submit(name, 20) for name in "ab"]
    driven.run(1)
    driven.slurm.fail_when = lambda call, words: True
    driven.run(0.4)
    driven.slurm.fail_when = lambda call, words: False
    for job in jobs:
        driven.slurm.scontrol("uhold" if held else "release", str(job))
    driven.run(1)
    assert driven.counts["left"] == 0
    if held:
        driven.until_done(*jobs)
    else:
        assert all(driven.slurm.job(job).priority == 0 for job in jobs)


def test_what_was_given_executors_and_does_not_start_makes_way():
    driven = Driven(patience_s=3.0)
    stuck = driven.slurm.submit("stuck", 2)
    other = driven.slurm.submit("other", 30)
    driven.slurm._independent = lambda job: job.id != stuck
    driven.run(12)
    assert driven.counts["stuck"] >= 1
    assert driven.slurm.job(stuck).priority == 0
    driven.until_done(other)


def test_a_node_dies_and_its_tasks_run_again():
    driven = Driven()
    job = driven.slurm.submit("a", 16, 3.0)
    driven.run(1.0)
    before = driven.driver.observe().jobs[0].stages[0]
    driven.slurm.kill_node("n0")
    after = driven.driver.observe()
    assert before.launched == 8 and after.jobs[0].stages[0].launched == 4
    assert after.executors == 4
    driven.until_done(job)
    assert not driven.said


def test_a_slurm_that_does_not_answer_is_waited_for():
    driven = Driven()
    jobs = [driven.slurm.submit(name, 10) for name in "ab"]
    driven.run(1)
    driven.slurm.fail_when = lambda call, words: True
    driven.run(5)
    assert len([line for line in driven.said if "trying again" in line]) == 1
    driven.slurm.fail_when = lambda call, words: False
    driven.until_done(*jobs)
    assert any("answers again" in line for line in driven.said)


def test_an_empty_answer_is_not_the_end_of_all_jobs():
    driven = Driven()
    job = driven.slurm.submit("a", 30)
    driven.run(1)
    whole, driven.slurm.jobs = driven.slurm.jobs, list
    driven.loop.step()
    driven.slurm.jobs = whole
    driven.loop.step()
    assert list(driven.driver.book.stages) == [job]
    driven.until_done(job)


@pytest.mark.parametrize("how", ["fail_when", "lost_when"])
@pytest.mark.parametrize("step", range(1, 26))
def test_whichever_command_fails_all_jobs_end(how, step):
    driven = Driven()
    jobs = [
        driven.slurm.submit("a", 12),
        driven.slurm.submit("b", 3),
        driven.slurm.submit("c", None),
    ]
    jobs.append(driven.slurm.submit("d", 2, after=(jobs[1],)))
    setattr(driven.slurm, how, lambda call, words: call == step)
    driven.until_done(*jobs)
    assert driven.counts["left"] == 0, driven.said


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_commands_that_fail_again_and_again_only_delay(share):
    driven = Driven()
    jobs = [driven.slurm.submit("a", 12), driven.slurm.submit("b", 3)]
    luck = random.Random(1)
    driven.slurm.fail_when = lambda call, words: luck.random() < share
    driven.until_done(*jobs)
    assert driven.counts["left"] == 0


def test_without_rights_for_priorities_all_jobs_end():
    driven = Driven()
    driven.slurm.denied_when = lambda words: words[-1].startswith("Priority=")
    jobs = [driven.slurm.submit(name, 6) for name in "abcdef"]
    driven.until_done(*jobs)
    assert driven.counts["failed"] and "rights are needed" in driven.said[0]
    alone = Driven(priority=0)
    jobs = [alone.slurm.submit(name, 6) for name in "abcdef"]
    alone.until_done(*jobs)
    assert not any(words[-1].startswith("Priority=") for words in alone.slurm.commands)


def test_jobs_that_may_not_be_changed_keep_nobody_waiting():
    driven = Driven()
    theirs = driven.slurm.submit("theirs", 2, user="bob")
    ours = driven.slurm.submit("ours", 30)
    driven.slurm.denied_when = lambda words: words[1].endswith(str(theirs))
    driven.until_done(ours)
    assert driven.slurm.job(theirs).priority == 0 and driven.counts["failed"] < 10


def test_everything_is_given_back():
    driven = Driven()
    some = [driven.slurm.submit(name, 20) for name in "abc"]
    driven.run(2)
    unseen = driven.slurm.submit("unseen", 4)
    assert driven.driver.give_back() == 4
    driven.slurm.pass_time(30)
    for job in [*some, unseen]:
        assert driven.slurm.finished(job) and driven.slurm.job(job).throttle == 0


@pytest.mark.parametrize("step", range(1, 12))
def test_giving_back_can_be_tried_again(step):
    driven = Driven()
    jobs = [driven.slurm.submit(name, 20) for name in "abc"]
    driven.run(2)
    calls = driven.slurm.calls
    driven.slurm.fail_when = lambda call, words: call == calls + step
    drives = driven.guardian.drives  # as the watchdog has it
    try:
        give_back(driven.slurm, drives, driven.said.append)
    except SlurmError:
        give_back(driven.slurm, drives, driven.said.append)
    driven.slurm.pass_time(30)
    assert all(driven.slurm.finished(job) for job in jobs)
    assert all(driven.slurm.job(job).throttle == 0 for job in jobs)


def test_the_end_of_the_loop_gives_back():
    driven = Driven()
    jobs = [driven.slurm.submit(name, 20) for name in "ab"]
    stop = threading.Event()
    thread = threading.Thread(target=driven.loop.run, args=(stop,))
    thread.start()
    stop.set()
    thread.join(10)
    driven.slurm.pass_time(20)
    assert all(driven.slurm.finished(job) for job in jobs)


def test_a_dry_run_shows_and_does_nothing():
    driven = Driven(dry_run=True)
    driven.slurm.submit("a", 6)
    driven.slurm.submit("b", 4)
    driven.run(2)
    assert driven.slurm.commands == []
    assert driven.shown[:3] == [
        "scontrol update JobId=2 ArrayTaskThrottle=4",
        "scontrol release 2",
        "scontrol update JobId=2 Priority=1000",
    ]
    assert len(driven.shown) == 6, "once"


def test_a_shadow_watches_all_jobs_and_does_nothing():
    driven = Driven(shadow=True)
    driven.slurm.submit("a", 12, held=False, comment="")
    driven.slurm.submit("b", 4, held=False, comment="")
    driven.slurm.submit("held", 4)
    driven.run(4)
    assert driven.slurm.commands == []
    figures = driven.metrics.figures()
    assert figures["ganger_jct_seconds_count"] == 2


def test_a_scheduler_that_declines_while_nothing_runs_is_overruled():
    driven = Driven(scheduler=Declines(), stall_s=0.05)
    job = driven.slurm.submit("a", 4)
    for _ in range(100):
        driven.run(0.2)
        time.sleep(0.01)
        if driven.slurm.finished(job):
            break
    assert driven.slurm.finished(job)
    assert driven.metrics.figures()["ganger_events_total stalled"] == 1


def test_durations_are_never_from_the_future():
    driven = Driven()
    driven.slurm.submit("unknown", 2)
    driven.slurm.submit("limited", 2, limit_s=600.0)

    def estimates():
        return [job.stages[0].estimated_task_s for job in driven.driver.observe().jobs]

    assert estimates() == [1.0, 600.0]
    driven.until_done(1, 2)
    driven.run(1)
    driven.slurm.submit("limited", 2, 3.0, limit_s=600.0)
    assert estimates()[0] == pytest.approx(1.0, abs=0.3), "what its name took before"
    driven.slurm.submit("limited", 2, limit_s=600.0, user="bob")
    assert estimates()[1] == 600.0, "of another user"


def test_jobs_that_ended_are_recorded(tmp_path):
    records = Records(tmp_path)
    driven = Driven(records=records)
    a = driven.slurm.submit("a", 4)
    driven.slurm.submit("b", 2, after=(a,))
    driven.until_done(a, 2)
    driven.run(1)
    records.close()
    (job,) = read_workload(tmp_path / "jobs.jobs.jsonl").jobs
    assert [stage.task_count for stage in job.stages] == [4, 2]


@pytest.mark.parametrize(
    "wrong", [{"interval_s": 0}, {"executor_cpus": 0}, {"priority": -1}, {"stall_s": float("inf")}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SlurmConfig(**wrong)


def test_a_partition_that_is_not_there():
    with pytest.raises(ConfigError, match="no partition 'nope' with nodes; there are toy"):
        check_partition(FakeSlurm(), "nope")
    check_partition(FakeSlurm(), "toy")


def test_what_may_not_start_yet_is_not_offered_executors():
    driven = Driven()
    later = driven.slurm.submit("later", 2)
    driven.slurm.job(later).eligible_s = driven.slurm.now_s + 5
    (job,) = driven.driver.observe().jobs
    assert not job.schedulable
    driven.run(3)
    assert driven.slurm.commands == []
    driven.until_done(later)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_is_submitted_and_whatever_fails_all_jobs_end(data):
    driven = Driven(FakeSlurm(nodes=2, cpus=4), patience_s=3.0)
    luck = random.Random(data.draw(st.integers(0, 2**32), label="luck"))
    share = data.draw(st.sampled_from([0.0, 0.1, 0.3]), label="share of commands that fail")
    lost = data.draw(st.booleans(), label="done, but not answered")

    def bad(call, words):
        return luck.random() < share

    setattr(driven.slurm, "lost_when" if lost else "fail_when", bad)
    ours, others, own_throttle = [], [], {}
    for number in range(data.draw(st.integers(1, 6), label="jobs")):
        if data.draw(st.integers(0, 4), label="kind") == 0:
            job = driven.slurm.submit(f"x{number}", 3, 1.5, held=False, comment="")
            others.append((job, driven.slurm.job(job).priority))
        else:
            tasks = data.draw(st.sampled_from([None, 1, 3, 9, 20]), label="tasks")
            throttle = data.draw(st.sampled_from([0, 2]), label="throttle") if tasks else 0
            cpus = data.draw(st.sampled_from([1, 3]), label="cpus") if tasks is None else 1
            after = data.draw(st.sampled_from([(), tuple(ours[-1:])]), label="after")
            seconds = data.draw(st.sampled_from([0.3, 1.0, 2.5]), label="seconds")
            job = driven.slurm.submit(
                f"o{number}", tasks, seconds, throttle=throttle, cpus=cpus, after=after
            )
            ours.append(job)
            own_throttle[job] = throttle
        driven.run(data.draw(st.sampled_from([0.0, 0.4, 2.0]), label="gap"))
        if data.draw(st.integers(0, 9), label="node") == 0:
            driven.slurm.kill_node("n0")
            driven.run(1.0)
            driven.slurm.down.clear()
    driven.until_done(*ours, *(job for job, _ in others))
    for job, throttle in own_throttle.items():
        assert not throttle or driven.slurm.most_together.get(job, 0) <= throttle
    for job, priority in others:
        assert driven.slurm.job(job).priority == priority
        assert not any(
            words[1].removeprefix("JobId=") == str(job) for words in driven.slurm.commands
        )
    assert driven.counts["left"] == 0
