"""Schedule the Standard Task Graphs and compare makespans with proven optima.

    python benchmarks/standard_task_graphs.py DIRECTORY

DIRECTORY holds the graphs (Tobita & Kasahara 2002) and optimal_verified.csv. A graph becomes a job
of single-task stages; executors move without delay. No schedule may be shorter than a proven
optimum: a row with `below` above 0 is a bug of the simulator, and the exit status is 1.

`at bound` counts, among the graphs whose file says that list scheduling meets the lower bound,
those where the scheduler meets it as well. `bound, any order` also tries other orders of the tasks
that end at the same instant: the simulator processes them one after another, and each freed
executor is decided about before the next one is (docs/simulator.md), where textbook list scheduling
first collects all of them.
"""

import argparse
import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.workload import Job, PerTask, Stage, Workload
from ganger.workload.readers import stg
from ganger.workload.readers.findings import Findings

SCHEDULERS = ("cpf", "srpt", "fifo", "fair", "random")
ORDERS = 40
_NUDGE = 1e-9  # of a duration: enough to order events, too little to be seen in a makespan


class Graph(NamedTuple):
    """A task graph on a number of processors."""

    stages: tuple[Stage, ...]
    processors: int
    list_schedule_bound: float | None  # where list scheduling meets the lower bound
    optimum: float | None


def read_graphs(directory: Path) -> Iterator[Graph]:
    """All graphs that optimal_verified.csv names and the directory holds."""
    with (directory / "optimal_verified.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            path = directory / row["instance"]
            if not path.is_file():
                continue
            (job,) = stg.read([path], Findings())
            meets = row["proof"].startswith("bound: list schedule meets")
            yield Graph(
                stages=job.stages,
                processors=int(row["processors"]),
                list_schedule_bound=float(row["list_schedule_upper_bound"]) if meets else None,
                optimum=float(row["proven_optimum"]) if row["proven_optimum"] else None,
            )


def makespan_s(graph: Graph, scheduler: str, order: int | None = None) -> float:
    """The makespan; with `order`, no two tasks end together: durations differ by less than 1e-9."""
    stages = graph.stages
    if order is not None:
        rng = random.Random(order)
        stages = tuple(_nudged(stage, rng) for stage in stages)
    workload = Workload((Job(id="graph", arrival_s=0.0, stages=stages),))
    cluster = Cluster(executors=graph.processors, move_delay_s=0.0)
    made_s = simulate(cluster, workload, parse_scheduler(scheduler)).makespan_s
    return round(made_s, 3)  # all times are whole numbers


def _nudged(stage: Stage, rng: random.Random) -> Stage:
    """The stage with a longer duration that no scheduler knows of."""
    (time_s,) = stage.durations.values_s
    longer = PerTask((time_s * (1 + _NUDGE * rng.random()),))
    return msgspec.structs.replace(stage, durations=longer, estimated_task_s=time_s)


class Line(NamedTuple):
    """One scheduler on all graphs."""

    scheduler: str
    proven: int
    """Graphs with a proven optimum."""
    below: int
    optimal: int
    mean_ratio: float
    """Mean of makespan / optimum over the graphs with a proven one."""
    bounded: int
    """Graphs where list scheduling meets the lower bound."""
    at_bound: int
    at_bound_in_some_order: int


def measure(graphs: list[Graph], scheduler: str) -> Line:
    """Schedule all graphs."""
    below = optimal = proven = bounded = at_bound = in_some_order = 0
    ratios = 0.0
    for graph in graphs:
        made_s = makespan_s(graph, scheduler)
        if graph.optimum is not None:
            proven += 1
            below += made_s < graph.optimum
            optimal += made_s == graph.optimum
            ratios += made_s / graph.optimum
        if graph.list_schedule_bound is not None:
            bounded += 1
            reached = made_s <= graph.list_schedule_bound
            at_bound += reached
            in_some_order += reached or (
                scheduler == "cpf"
                and any(
                    makespan_s(graph, scheduler, order) <= graph.list_schedule_bound
                    for order in range(ORDERS)
                )
            )
    return Line(
        scheduler, proven, below, optimal, ratios / proven, bounded, at_bound, in_some_order
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, help="holds the graphs and optimal_verified.csv")
    graphs = list(read_graphs(parser.parse_args().directory))
    print("scheduler  proven  below  optimal  mean ratio  bounded  at bound  bound, any order")
    wrong = 0
    for scheduler in SCHEDULERS:
        line = measure(graphs, scheduler)
        some_order = f"{line.at_bound_in_some_order:16}" if scheduler == "cpf" else ""
        print(
            f"{line.scheduler:9}  {line.proven:6}  {line.below:5}  {line.optimal:7}  "
            f"{line.mean_ratio:10.4f}  {line.bounded:7}  {line.at_bound:8}  {some_order}"
        )
        wrong += line.below
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
