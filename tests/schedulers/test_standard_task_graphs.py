"""The Standard Task Graphs (Tobita & Kasahara): single-task stages with proven optima."""

import csv

import pytest

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, PerTask, Stage, Workload


def read_graph(path):
    """Lines of: task, its time, how many parents, the parents; the first line counts the tasks."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    stages = tuple(
        Stage(
            id=task,
            parents=tuple(parents),
            task_count=1,
            durations=PerTask((float(time),)),
        )
        for task, time, _, *parents in lines[1:]
        if task
    )
    return Workload((Job(id="graph", arrival_s=0.0, stages=stages),))


@pytest.fixture(scope="module")
def graphs(shared_dir):
    directory = shared_dir / "data" / "stg"
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent")
    with open(directory / "optimal_verified.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (directory / row["instance"]).is_file()]
    return [(row, read_graph(directory / row["instance"])) for row in rows]


def makespan_s(row, workload, scheduler):
    cluster = Cluster(executors=int(row["processors"]), move_delay_s=0.0)
    return simulate(cluster, workload, parse_scheduler(scheduler)).makespan_s


@pytest.mark.parametrize("scheduler", ["cpf", "fifo", "fair", "random"])
def test_no_schedule_is_shorter_than_a_proven_optimum(graphs, scheduler):
    for row, workload in graphs:
        if row["proven_optimum"]:
            assert makespan_s(row, workload, scheduler) >= float(row["proven_optimum"])


def test_critical_path_first_is_optimal_where_list_scheduling_is_known_to_be(graphs):
    met = [
        makespan_s(row, workload, "cpf") == float(row["proven_optimum"])
        for row, workload in graphs
        if row["proof"].startswith("bound: list schedule meets")
    ]
    assert all(met), f"{met.count(False)} of {len(met)} miss it"
