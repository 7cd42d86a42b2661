"""Small clusters and workloads by name: what is rare in practice, and random ones."""

from typing import NamedTuple

import numpy as np

from ganger.errors import SimulationError
from ganger.simulator.simulate import Cluster
from ganger.workload.model import Durations, Job, PerTask, Pool, Stage, Wave, Waves, Workload

RANDOM_CASES = 20


class Case(NamedTuple):
    """A cluster, and jobs for it."""

    cluster: Cluster
    workload: Workload


def _stage(name: str, *parents: str, tasks: int = 3, seconds: float = 2.0) -> Stage:
    return Stage(id=name, parents=parents, task_count=tasks, durations=Pool((seconds,)))


def _jobs(stages: tuple[Stage, ...], *arrivals_s: float) -> Workload:
    return Workload(
        tuple(
            Job(id=f"job {i}", arrival_s=arrival_s, stages=stages)
            for i, arrival_s in enumerate(arrivals_s)
        )
    )


_TWO = (_stage("first"), _stage("second", "first"))
_CHAIN = tuple(_stage(str(i), *([str(i - 1)] if i else []), tasks=2) for i in range(16))
_FAN = (
    _stage("split", tasks=1),
    *(_stage(f"part {i}", "split", tasks=1 + i % 3) for i in range(24)),
    _stage("merge", *(f"part {i}" for i in range(24)), tasks=1),
)

_GANG = (
    _stage("first"),
    Stage(id="gang", parents=("first",), task_count=4, durations=Pool((1.0, 9.0)), gang=True),
    _stage("last", "gang"),
)

_EXTREME = {
    "gangs among tasks": Case(Cluster(executors=5), _jobs(_GANG, 0.0, 0.0, 3.0, 3.0)),
    "one executor": Case(Cluster(executors=1), _jobs(_TWO, 0.0, 1.0, 1.5)),
    "one job": Case(Cluster(executors=8), _jobs(_TWO, 0.0)),
    "one task": Case(Cluster(executors=3), _jobs((_stage("only", tasks=1),), 5.0)),
    "more executors than tasks": Case(Cluster(executors=100), _jobs(_TWO, 0.0, 0.0, 3.0)),
    "thousands of tasks": Case(
        Cluster(executors=50), _jobs((_stage("map", tasks=4000), _stage("sum", "map")), 0.0, 10.0)
    ),
    "a chain of stages": Case(Cluster(executors=4), _jobs(_CHAIN, 0.0, 3.0)),
    "a wide fan of stages": Case(Cluster(executors=7), _jobs(_FAN, 0.0, 4.0)),
    "all jobs at once": Case(Cluster(executors=5), _jobs(_TWO, *([0.0] * 12))),
    "tasks of no duration": Case(
        Cluster(executors=3, move_delay_s=0.0),
        _jobs((_stage("x", seconds=0.0), _stage("y", "x", seconds=0.0)), 0.0, 0.0, 1.0),
    ),
    "a long pause between jobs": Case(Cluster(executors=3), _jobs(_TWO, 0.0, 1e6)),
}

CASES = (*_EXTREME, *(f"random {i}" for i in range(RANDOM_CASES)))
"""The names that `case` knows."""


def case(name: str) -> Case:
    """The cluster and workload of that name, always the same.

    Raises:
        SimulationError: there is none; the message lists the names.
    """
    if name in _EXTREME:
        return _EXTREME[name]
    if name in CASES:
        return _random(np.random.default_rng([int(name.removeprefix("random "))]))
    raise SimulationError(f"case {name!r} is unknown; there are {', '.join(CASES)}")


def _random(rng: np.random.Generator) -> Case:
    templates = [_random_stages(rng) for _ in range(int(rng.integers(1, 4)))]
    gap_s = float(rng.choice([0.0, 2.0, 20.0]))
    workload = Workload(
        tuple(
            Job(
                id=f"job {i}",
                arrival_s=round(i * gap_s * float(rng.random()), 1),
                stages=templates[int(rng.integers(len(templates)))],
            )
            for i in range(int(rng.integers(1, 9)))
        )
    )
    move_delay_s = float(rng.choice([0.0, 2.0]))
    return Case(Cluster(executors=int(rng.integers(1, 13)), move_delay_s=move_delay_s), workload)


def _random_stages(rng: np.random.Generator) -> tuple[Stage, ...]:
    stages = []
    for i in range(int(rng.integers(1, 8))):
        parents = [str(p) for p in range(i) if rng.random() < 0.4]
        tasks = int(rng.integers(1, 13))
        durations = _random_durations(rng, tasks)
        stages.append(
            Stage(id=str(i), parents=tuple(parents), task_count=tasks, durations=durations)
        )
    return tuple(stages)


def _random_durations(rng: np.random.Generator, tasks: int) -> Durations:
    def seconds(count: int) -> tuple[float, ...]:
        return tuple(rng.choice([0.0, 1.0, 1.0, 2.5, 10.0], count).tolist())

    match int(rng.integers(3)):
        case 0:
            return PerTask(seconds(tasks))
        case 1:
            return Pool(seconds(3))
        case _:
            few = Wave(executors=2, fresh_s=seconds(2), first_s=seconds(2), rest_s=seconds(2))
            many = Wave(executors=8, first_s=seconds(2), rest_s=seconds(1))
            return Waves(levels=(few, many), warmup_s=0.5)
