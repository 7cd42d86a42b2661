"""Running a workload: what is refused and how it is said, what a result counts, and large cases."""

import numpy as np
import pytest

from ganger.errors import SimulationError
from ganger.schedulers import parse_scheduler
from ganger.simulator.observation import Decision
from ganger.simulator.simulate import Cluster, prepare, simulate
from ganger.workload import Job, Pool, Stage, Workload


def pool(name, tasks, *values_s, after=()):
    return Stage(id=name, parents=tuple(after), task_count=tasks, durations=Pool(values_s))


def chain(name="a", arrival_s=0.0):
    """x of two tasks, then y."""
    return Job(
        id=name, arrival_s=arrival_s, stages=(pool("x", 2, 1.0), pool("y", 1, 1.0, after="x"))
    )


class Says:
    """Always the same answer."""

    def __init__(self, answer):
        self.answer = answer

    def decide(self, observation):
        return self.answer


# ---------------------------------------------------------------- impossible clusters and decisions
@pytest.mark.uncompiled
@pytest.mark.parametrize("executors", [0, -3])
def test_a_cluster_without_executors_is_refused(executors):
    with pytest.raises(SimulationError, match=rf"executors is {executors}; .* 1 or more"):
        Cluster(executors=executors)


@pytest.mark.uncompiled
@pytest.mark.parametrize("delay_s", [-1.0, float("inf"), float("nan")])
def test_a_delay_that_is_no_time_is_refused(delay_s):
    with pytest.raises(SimulationError, match=r"move_delay_s is .*; expected 0 or more"):
        Cluster(executors=1, move_delay_s=delay_s)


@pytest.mark.uncompiled
def test_a_workload_without_jobs_is_refused():
    with pytest.raises(SimulationError, match="no jobs"):
        simulate(Cluster(executors=1), Workload(()), parse_scheduler("fifo"))


@pytest.mark.uncompiled
def test_a_scheduler_that_always_declines_is_named_and_never_hangs():
    with pytest.raises(SimulationError, match=r"Says left 2 of 2 jobs unfinished.*'a'.*declined"):
        simulate(Cluster(executors=3), Workload((chain("a"), chain("b", 9.0))), Says(None))


@pytest.mark.uncompiled
@pytest.mark.parametrize(
    ("decision", "complaint"),
    [
        (Decision("nowhere", "x", 1), "job 'nowhere'.* no such job in the system.*'a'"),
        (Decision("late", "x", 1), "job 'late'.* no such job in the system.*'a'"),
        (Decision("a", "z", 1), r"stage 'z' of job 'a'.* no such stage; the job has \['x', 'y'\]"),
        (Decision("a", "y", 1), "stage 'y' .*not schedulable, a parent still needs executors"),
        (Decision("a", "x", 0), "limit is 0; expected a whole number from 1"),
        (Decision("a", "x", -5), "limit is -5"),
        (Decision("a", "x", 1.5), "limit is 1.5"),
        (Decision("a", "x", None), "limit is None"),
        (Decision("a", "x", float("nan")), "limit is nan"),
    ],
)
def test_an_impossible_decision_is_refused_by_name(decision, complaint):
    workload = Workload((chain("a"), chain("late", 1e6)))
    with pytest.raises(SimulationError, match=complaint):
        simulate(Cluster(executors=2), workload, Says(decision))


@pytest.mark.uncompiled
def test_choosing_a_stage_twice_in_a_round_is_refused():
    with pytest.raises(SimulationError, match="chosen before in this scheduling round"):
        simulate(
            Cluster(executors=3),
            Workload((Job(id="a", arrival_s=0.0, stages=(pool("x", 3, 1.0), pool("y", 1, 1.0))),)),
            Says(Decision("a", "x", 1)),
        )


@pytest.mark.uncompiled
def test_choosing_a_stage_that_has_an_executor_for_every_task_is_refused():
    stages = (pool("x", 2, 1.0), pool("y", 1, 1.0))
    with pytest.raises(SimulationError, match="already has an executor for every task"):
        simulate(
            Cluster(executors=3),
            Workload((Job(id="a", arrival_s=0.0, stages=stages),)),
            Says(Decision("a", "x", 9)),
        )


@pytest.mark.uncompiled
@pytest.mark.parametrize("limit", [10**30, np.int64(7), np.int32(7)])
def test_any_whole_number_from_1_is_a_limit(limit):
    class Everything:
        def decide(self, observation):
            job = observation.jobs[0]
            return Decision(job=job.id, stage=job.schedulable[0].id, limit=limit)

    result = simulate(Cluster(executors=2), Workload((chain(),)), Everything())
    assert result.makespan_s == 4.0


# ---------------------------------------------------------------- results
@pytest.mark.uncompiled
def test_a_result_counts_and_measures():
    jobs = tuple(
        Job(id=str(i), arrival_s=10.0 + 100.0 * i, stages=(pool("x", 1, float(i)),))
        for i in range(4)
    )
    result = simulate(Cluster(executors=2), Workload(jobs), parse_scheduler("fifo"))
    assert result.jct_s.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert result.summary() == {
        "mean_jct_s": 3.5,
        "p50_jct_s": 3.5,
        "p95_jct_s": pytest.approx(4.85),
        "p99_jct_s": pytest.approx(4.97),
        "makespan_s": 305.0,
        "utilisation": (0 + 1 + 2 + 3) / (2 * 305.0),
        "horizon_s": 305.0,
        "submitted": 4,
        "finished": 4,
        "unfinished": 0,
        "rejected": 0,
        "killed": 0,
        "events": 12,
        "decisions": 4,
    }
    assert result.timeline is None


@pytest.mark.uncompiled
def test_jobs_that_share_their_stages_share_a_template_and_nothing_else():
    stages = (pool("x", 3, 1.0, 2.0, 3.0),)
    jobs = tuple(Job(id=str(i), arrival_s=0.0, stages=stages) for i in range(3))
    assert prepare(Workload(jobs)).templates.tolist() == [0, 0, 0]
    result = simulate(Cluster(executors=9), Workload(jobs), parse_scheduler("fifo"), timeline=True)
    taken = result.timeline["finish_s"] - result.timeline["start_s"]
    by_job = [tuple(sorted(taken[result.timeline["job"] == j])) for j in range(3)]
    assert len(set(by_job)) > 1, "jobs of one template have luck of their own"


# ---------------------------------------------------------------- large cases
@pytest.mark.parametrize("scheduler", ["fifo", "fair", "srpt"])
def test_a_stage_of_ten_thousand_tasks(scheduler):
    workload = Workload((Job(id="a", arrival_s=0.0, stages=(pool("x", 10_000, 1.0),)),))
    result = simulate(Cluster(executors=7), workload, parse_scheduler(scheduler))
    assert result.makespan_s == 2.0 + 1429  # ceil(10,000 / 7)
    assert result.events == 1 + 7 + 10_000


def test_a_fan_out_of_ten_thousand_stages():
    leaves = tuple(pool(f"leaf {i}", 1, 1.0, after=("root",)) for i in range(10_000))
    workload = Workload((Job(id="a", arrival_s=0.0, stages=(pool("root", 1, 5.0), *leaves)),))
    result = simulate(Cluster(executors=100), workload, parse_scheduler("fifo"))
    assert result.makespan_s == 2.0 + 5.0 + 100


def test_a_fan_in_of_ten_thousand_stages():
    leaves = tuple(pool(f"leaf {i}", 1, 1.0) for i in range(10_000))
    root = pool("root", 1, 5.0, after=tuple(leaf.id for leaf in leaves))
    workload = Workload((Job(id="a", arrival_s=0.0, stages=(*leaves, root)),))
    result = simulate(Cluster(executors=100), workload, parse_scheduler("fifo"))
    assert result.makespan_s == 2.0 + 100 + 5.0


def test_a_hundred_thousand_jobs():
    stages = (pool("x", 2, 1.0),)
    jobs = tuple(Job(id=str(i), arrival_s=float(i), stages=stages) for i in range(100_000))
    result = simulate(Cluster(executors=20), Workload(jobs), parse_scheduler("fifo"))
    assert result.finished == 100_000
    assert result.jct_s.tolist() == [3.0] * 100_000
