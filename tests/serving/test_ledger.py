"""The ledger of a real cluster keeps the simulator's rules, and survives what simulators lack."""

import heapq
import random

import pytest
from invariants import RandomDecisions
from msgspec.structs import replace

from ganger.schedulers import Fair, Srpt
from ganger.serving.ledger import Ledger
from ganger.serving.rounds import decide_round
from ganger.simulator.observation import Decision
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, PerTask, Stage, Workload


def random_workload(seed, jobs=4):
    draw = random.Random(seed)
    made = []
    for j in range(jobs):
        stages = []
        for s in range(draw.randint(1, 5)):
            parents = [str(k) for k in range(s) if draw.random() < 0.5]
            durations = tuple(draw.uniform(0.5, 3) for _ in range(draw.randint(1, 8)))
            stages.append(
                Stage(
                    id=str(s),
                    parents=tuple(parents),
                    task_count=len(durations),
                    durations=PerTask(durations),
                    estimated_task_s=draw.uniform(0.5, 3),
                )
            )
        made.append(Job(id=f"j{j}", arrival_s=draw.uniform(0, 12), stages=tuple(stages)))
    return Workload(tuple(sorted(made, key=lambda job: job.arrival_s)))


def cluster_of(executors):
    """What a ledger keeps the books of, simulated."""
    rules = {"reconsider": True, "work_conserving": True}
    return Cluster(executors=executors, move_delay_s=0.0, **rules)


class Asked:
    """Remembers what a scheduler was asked; versions are the askers' own business."""

    def __init__(self, scheduler):
        self.scheduler, self.seen = scheduler, []

    def decide(self, observation):
        observation = replace(observation, version=len(self.seen))
        self.seen.append(observation)
        return self.scheduler.decide(observation)


class Engine:
    """A cluster that runs tasks by the clock, driven through a ledger."""

    def __init__(self, workload, executors):
        self.ledger = Ledger()
        self.jobs = {job.id: job for job in workload.jobs}
        self.stages = {(job.id, s.id): s for job in workload.jobs for s in job.stages}
        self.left = {key: s.task_count for key, s in self.stages.items()}
        self.started = dict.fromkeys(self.stages, 0)
        self.events, self.pushed, self.now_s = [], 0, 0.0
        self.runs = {}
        self.finish_s = {}
        self.lost = []
        self.ledger.add_executors(range(executors))
        for job in workload.jobs:
            self.push(job.arrival_s, ("arrive", job.id))

    def push(self, at_s, what):
        heapq.heappush(self.events, (at_s, self.pushed, what))
        self.pushed += 1

    def estimates(self):
        return {key: stage.estimated_task_s for key, stage in self.stages.items()}

    def run(self, scheduler):
        while self.events:
            self.now_s, _, (what, name) = heapq.heappop(self.events)
            if what == "arrive":
                self.arrive(self.jobs[name])
            elif what == "lose":
                self.lose(name)
            elif self.runs.get(name[0], (None,) * 3)[2] == name[1]:
                self.finish(name[0])
            self.ledger.settle()
            self.answer(scheduler)
            self.check()
        return self.finish_s

    def arrive(self, job):
        for stage in job.stages:
            self.ledger.add_tasks(job.id, stage.id, stage.parents, stage.task_count, self.now_s)
        for stage in job.stages:
            if not stage.parents:
                self.ledger.tasks_ready(job.id, stage.id, stage.task_count)

    def finish(self, executor):
        key, took_s, _ = self.runs.pop(executor)
        job = self.jobs[key[0]]
        self.left[key] -= 1
        if self.left[key] == 0:
            for stage in job.stages:
                if key[1] in stage.parents and all(
                    self.left[job.id, parent] == 0 for parent in stage.parents
                ):
                    self.ledger.tasks_ready(job.id, stage.id, stage.task_count)
        self.ledger.task_finished(executor, took_s)

    def lose(self, executor):
        """A worker dies; its task must run again, on another one that joins later."""
        gone = self.runs.pop(executor, None)
        self.ledger.remove_executor(executor)
        if gone is not None:
            self.lost.append(gone[0])
            self.ledger.tasks_ready(*gone[0], 1)
            self.started[gone[0]] -= 1

    def answer(self, scheduler):
        self.launch()
        while self.ledger.waits:
            seen = self.ledger.observation(self.now_s, self.estimates())
            assert self.ledger.act(decide_round(scheduler.decide, seen), seen.version)
            self.launch()

    def launch(self):
        for executor, job, stage in self.ledger.launches:
            key = (job, stage)
            took_s = self.stages[key].durations.values_s[self.started[key]]
            self.started[key] += 1
            assert executor not in self.runs, "an executor runs one task at a time"
            self.runs[executor] = (key, took_s, self.pushed)
            self.push(self.now_s + took_s, ("end", (executor, self.pushed)))
        self.ledger.launches.clear()
        for job in self.ledger.ended:
            self.finish_s[job] = self.now_s
        self.ledger.ended.clear()

    def check(self):
        """What must hold between events."""
        ledger = self.ledger
        seen = ledger.observation(self.now_s, self.estimates())
        assert len(ledger._idle) == len(set(ledger._idle)) == seen.idle
        running = sum(s.launched - s.finished for job in seen.jobs for s in job.stages)
        assert running == len(self.runs) == seen.executors - seen.idle
        for job in seen.jobs:
            assert 0 <= job.executors <= job.supply
            for stage in job.stages:
                assert 0 <= stage.finished <= stage.launched <= stage.tasks
                assert stage.committed >= 0
                left = self.left[job.id, stage.id]
                assert stage.tasks - stage.finished == left


def test_a_scheduler_is_asked_the_same_as_in_the_simulator():
    compared = 0
    for seed in range(60):
        workload, executors = random_workload(seed), 1 + seed % 7
        there, here = (Asked(RandomDecisions(seed)) for _ in range(2))
        cluster = cluster_of(executors)
        simulate(cluster, workload, there)
        Engine(workload, executors).run(here)
        for simulated, driven in zip(there.seen, here.seen, strict=False):
            if any(stage.moving for job in simulated.jobs for stage in job.stages):
                break  # there a move is an event of its own, even one that takes no time
            if simulated.source_job is None:  # whether who has just ended a job counts as idle
                driven = replace(driven, idle=simulated.idle)
            assert driven == simulated
            compared += 1
    assert compared > 600


@pytest.mark.parametrize("scheduler", [Fair(), Srpt()], ids=str)
def test_it_takes_as_long_as_in_the_simulator(scheduler):
    ratios = []
    for seed in range(30):
        workload = random_workload(seed)
        simulated = simulate(cluster_of(4), workload, scheduler)
        finish_s = Engine(workload, 4).run(scheduler)
        driven = sum(finish_s[job.id] - job.arrival_s for job in workload.jobs)
        ratios.append(driven / simulated.jct_s.sum())
    assert all(ratio == pytest.approx(1) for ratio in ratios)


@pytest.mark.parametrize("seed", range(30))
def test_workers_die_and_join_and_nothing_is_lost_or_run_twice(seed):
    draw = random.Random(seed)
    workload = random_workload(seed)
    engine = Engine(workload, 6)
    for executor in draw.sample(range(6), 4):
        engine.push(draw.uniform(0, 20), ("lose", executor))
    engine.run(RandomDecisions(seed))
    assert set(engine.finish_s) == {job.id for job in workload.jobs}
    assert all(left == 0 for left in engine.left.values())


def small(executors=2):
    ledger = Ledger()
    ledger.add_executors(range(executors))
    ledger.add_tasks("a", "map", (), 3, 0.0)
    ledger.add_tasks("a", "sum", ("map",), 1, 0.0)
    ledger.tasks_ready("a", "map", 3)
    ledger.settle()
    return ledger


ESTIMATES = {("a", "map"): 1.0, ("a", "sum"): 1.0}


def test_an_answer_to_an_older_question_changes_nothing():
    ledger = small()
    asked = ledger.observation(0.0, ESTIMATES)
    ledger.remove_executor(1)
    assert not ledger.act([Decision("a", "map", 2)], asked.version)
    again = ledger.observation(0.0, ESTIMATES)
    assert again.on_offer == 1 and again.version > asked.version
    assert ledger.act([Decision("a", "map", 2)], again.version)
    assert ledger.launches == [(0, "a", "map")]
    assert not ledger.act([Decision("a", "map", 2)], again.version), "nor the same one twice"


def test_an_answer_that_must_not_be_given_changes_nothing():
    ledger = small()
    asked = ledger.observation(0.0, ESTIMATES)
    assert not ledger.act([Decision("a", "sum", 2)], asked.version)
    again = ledger.observation(0.0, ESTIMATES)
    assert again == replace(asked, version=again.version) and again.version > asked.version


def test_what_can_still_be_done_of_an_answer_is_done():
    ledger = small(executors=3)
    asked = ledger.observation(0.0, ESTIMATES)
    late = [Decision("gone", "map", 2), Decision("a", "map", 2)]
    assert ledger.act(late, asked.version)
    assert ledger.dropped == 1 and len(ledger.launches) == 2


def test_without_a_scheduler_jobs_are_served_in_order():
    ledger = small(executors=1)
    ledger.serve_in_order()
    for ready in (0, 0, 1):
        if ready:
            ledger.tasks_ready("a", "sum")
        ledger.task_finished(0, 1.0)
        ledger.settle()
        ledger.serve_in_order()
    ledger.task_finished(0, 2.0)
    ledger.settle()
    assert [stage for _, _, stage in ledger.launches] == ["map"] * 3 + ["sum"]
    assert ledger.ended == ["a"]


def test_results_that_are_lost_are_made_again():
    ledger = small(executors=1)
    ledger.serve_in_order()
    ledger.task_finished(0, 1.0)
    ledger.settle()
    ledger.results_lost("a", "map")
    ledger.tasks_ready("a", "map")
    stage = ledger.observation(0.0, ESTIMATES).jobs[0].stages[0]
    assert (stage.launched, stage.finished) == (1, 0)


def test_a_ring_of_stages_is_cut():
    """Stages are groups of tasks; tasks of two groups may wait for each other's."""
    ledger = Ledger()
    ledger.add_executors(range(1))
    ledger.add_tasks("a", "x", (), 1, 0.0)
    ledger.add_tasks("a", "y", ("x",), 1, 0.0)
    ledger.add_tasks("a", "x", ("y", "x"), 1, 0.0)
    ledger.tasks_ready("a", "x")
    ledger.settle()
    stages = ledger.observation(0.0, {("a", "x"): 1.0, ("a", "y"): 1.0}).jobs[0].stages
    assert [(stage.id, stage.parents) for stage in stages] == [("x", ()), ("y", ("x",))]


def test_a_job_that_is_cancelled_leaves():
    ledger = small()
    ledger.remove_tasks("a", "map", 3)
    ledger.remove_tasks("a", "sum", 1)
    ledger.settle()
    assert ledger.ended == ["a"] and not ledger.waits
    seen = ledger.observation(0.0, {})
    assert seen.jobs == () and seen.idle == 2
