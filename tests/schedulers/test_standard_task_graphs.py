"""The Standard Task Graphs (Tobita & Kasahara): single-task stages with proven optima."""

import csv
import random

import pytest

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, PerTask, Stage, Workload
from ganger.workload.readers import stg
from ganger.workload.readers.findings import Findings


@pytest.fixture(scope="module")
def graphs(shared_dir):
    directory = shared_dir / "data" / "stg"
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent")
    with open(directory / "optimal_verified.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (directory / row["instance"]).is_file()]
    paths = [directory / row["instance"] for row in rows]
    return [
        (row, Workload((job,))) for row, job in zip(rows, stg.read(paths, Findings()), strict=True)
    ]


def makespan_s(row, workload, scheduler):
    cluster = Cluster(executors=int(row["processors"]), move_delay_s=0.0)
    return simulate(cluster, workload, parse_scheduler(scheduler)).makespan_s


@pytest.mark.parametrize("scheduler", ["cpf", "fifo", "fair", "random"])
def test_no_schedule_is_shorter_than_a_proven_optimum(graphs, scheduler):
    for row, workload in graphs:
        if row["proven_optimum"]:
            assert makespan_s(row, workload, scheduler) >= float(row["proven_optimum"])


def test_critical_path_first_is_optimal_where_list_scheduling_is_known_to_be(graphs):
    # Tasks that end at the same instant free their executors one after another, so the first one
    # decides before the last one's children are ready, where list scheduling waits for them all.
    # That costs a few graphs the optimum: in another order of these events they reach it.
    missed = [
        (row, workload)
        for row, workload in graphs
        if row["proof"].startswith("bound: list schedule meets")
        and makespan_s(row, workload, "cpf") > float(row["proven_optimum"])
    ]
    assert len(missed) < 0.01 * len(graphs)
    for row, workload in missed:
        reached = (round(makespan_s(row, shuffled(workload, seed), "cpf"), 3) for seed in range(40))
        assert float(row["proven_optimum"]) in reached, row["instance"]


def shuffled(workload, seed):
    """The graph with durations longer by less than 1e-9, so that no two tasks end together."""
    draw = random.Random(seed)
    (job,) = workload.jobs
    return Workload(
        (
            Job(
                id=job.id,
                arrival_s=0.0,
                stages=tuple(
                    Stage(
                        id=stage.id,
                        parents=stage.parents,
                        task_count=1,
                        durations=PerTask(
                            (stage.durations.values_s[0] * (1 + 1e-9 * draw.random()),)
                        ),
                        estimated_task_s=stage.durations.values_s[0],
                    )
                    for stage in job.stages
                ),
            ),
        )
    )
