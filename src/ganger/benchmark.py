"""How fast this machine simulates, acts, learns and trains.

All on 50 executors with one arrival in 25 s on average: the setting of the published figures.
Simulating and acting use one core; training uses one for an actor and one for the learner.
"""

import importlib.util
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ganger import streams
from ganger.compiled import compiled
from ganger.policy.features import new_rows
from ganger.policy.forward import choose_decision, new_scratch, weights_of
from ganger.policy.layout import initial_vector, limit_levels
from ganger.schedulers import Fair
from ganger.simulator import engine
from ganger.simulator.simulate import Cluster, load_episode, prepare, run_compiled
from ganger.simulator.state import State
from ganger.simulator.table import Table, build_table
from ganger.streams import Stream, derive
from ganger.training.config import TrainConfig
from ganger.training.run_directory import machine
from ganger.workload import Job, JobSource, Pool, Stage, Workload, load_source, random_workload

if TYPE_CHECKING:
    from ganger.training.actor import ActedTrajectory

_EXECUTORS, _INTERARRIVAL_S = 50, 25.0
_SIMULATED_JOBS = 200
_REPEATS = 7
_DECISIONS = 2000  # timed in one call
_TRAINING_S = 15.0
_FIRST, _FALSE, _TRUE = np.int64(0), np.bool_(False), np.bool_(True)

Progress = Callable[[float, float, str], None]


def benchmark(
    workload: str = "synthetic", *, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Measure everything; what needs torch is None without it.

    Args:
        workload: where jobs are drawn from.
        seed: of everything random.
        progress: called with steps done, steps in all, and what comes next.

    Raises:
        GangerError: the workload is wrong.
    """
    source = load_source(workload)
    with_torch = importlib.util.find_spec("torch") is not None
    steps = 5 if with_torch else 3

    def about_to(what: str, done: int) -> None:
        if progress is not None:
            progress(done, steps, what)

    about_to("simulate", 0)
    events_per_s, decisions_per_s = simulator_speed(source, seed)
    about_to("decide", 1)
    figures: dict[str, Any] = {
        "simulator_events_per_s": events_per_s,
        "simulator_decisions_per_s": decisions_per_s,
        "decision_us": decision_us(seed),
        "acting_decisions_per_s": None,
        "learner_decisions_per_s": None,
        "training_decisions_per_s": None,
    }
    about_to("act", 2)
    config = TrainConfig(
        workload=workload,
        executors=_EXECUTORS,
        interarrival_s=_INTERARRIVAL_S,
        minutes=_TRAINING_S / 60,
        validate_every_s=0.0,
        seed=seed,
    )
    acting_per_s, acted = acting_speed(config, build_table(source.templates("train")))
    figures["acting_decisions_per_s"] = acting_per_s
    if with_torch:
        about_to("train", 3)
        figures["training_decisions_per_s"] = training_speed(config)
        about_to("learn", 4)
        figures["learner_decisions_per_s"] = learner_speed(config, source, acted)
    figures["peak_memory_mb"] = peak_memory_mb()
    return figures | {"workload": workload, "seed": seed, "machine": machine()}


def simulator_speed(source: JobSource, seed: int) -> tuple[float, float]:
    """Events and decisions per second under fair sharing, one core, loading excluded."""
    cluster = Cluster(executors=_EXECUTORS)
    episode = prepare(
        random_workload(source, jobs=_SIMULATED_JOBS, interarrival_s=_INTERARRIVAL_S, seed=seed)
    )
    events, decisions = [], []
    for repeat in range(_REPEATS):
        state = load_episode(episode, cluster, seed=seed + repeat)
        begin = time.perf_counter()
        run_compiled(state, episode.table, Fair(), seed)
        elapsed_s = time.perf_counter() - begin
        events.append(int(state.clock[0]["events"]) / elapsed_s)
        decisions.append(int(state.clock[0]["decisions"]) / elapsed_s)
    return median(events), median(decisions)


@compiled
def _decide_often(state, table, weights, scratch, rows, levels, key, times):
    """The same decision over and over; the sum keeps the compiler from leaving it out."""
    total = 0
    for i in range(times):
        chosen, level, _ = choose_decision(
            state, table, weights, scratch, rows, _FIRST, levels, _FALSE, _FALSE,
            derive(key, i), _TRUE,
        )  # fmt: skip
        total += chosen + level
    return total


def decision_us(seed: int) -> float:
    """Microseconds of a sampled decision, features included: 20 jobs, 36 frontier stages."""
    state, table = state_of_20_jobs_and_36_frontier_stages()
    vector = initial_vector(streams.rng(seed, Stream.LEARNER), False)
    stages = len(state.stages)
    arguments = (
        weights_of(vector, False),
        new_scratch(len(state.jobs), stages, stages),
        new_rows(1, stages, len(state.jobs), 1),
        limit_levels(_EXECUTORS),
        streams.key(seed, Stream.SCHEDULER),
    )
    _decide_often(state, table, *arguments, 1)  # compiles
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        _decide_often(state, table, *arguments, _DECISIONS)
        times.append((time.perf_counter() - begin) / _DECISIONS * 1e6)
    return median(times)


def state_of_20_jobs_and_36_frontier_stages() -> tuple[State, Table]:
    """A cluster that waits for its first decision: 16 jobs may start two stages, 4 one."""

    def stages(roots: int) -> tuple[Stage, ...]:
        names = [f"root {i}" for i in range(roots)]
        parents: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
        parents["step 0"] = tuple(names)
        for i in range(1, 6):
            parents[f"step {i}"] = (f"step {i - 1}",)
        return tuple(
            Stage(id=name, parents=of_it, task_count=20, durations=Pool((1.0, 2.0)))
            for name, of_it in parents.items()
        )

    two, one = stages(2), stages(1)
    jobs = (Job(id=str(i), arrival_s=0.0, stages=two if i < 16 else one) for i in range(20))
    episode = prepare(Workload(tuple(jobs)))
    state = load_episode(episode, Cluster(executors=_EXECUTORS), seed=0)
    assert engine.advance(state, episode.table) == 1
    return state, episode.table


def acting_speed(config: TrainConfig, table: Table) -> "tuple[float, ActedTrajectory]":
    """Decisions per second of one actor with an untrained policy, and what it acted last."""
    from ganger.training.actor import Actor
    from ganger.training.exchange import Parameters

    parameters = Parameters(initial_vector(streams.rng(config.seed, Stream.LEARNER), False), 0)
    actor = Actor(config, table, 0)
    acted = [actor.act(parameters) for _ in range(_REPEATS)]
    # The first one grows its memory, and its clusters have just been started.
    per_s = [config.environments * config.steps / one.seconds for one in acted[1:]]
    return median(per_s), acted[-1]


def learner_speed(config: TrainConfig, source: JobSource, acted: "ActedTrajectory") -> float:
    """Decisions per second of the learner's updates, by itself, on all cores."""
    from ganger.training.cells import measure_cells
    from ganger.training.learner import Learner

    learner = Learner(config, measure_cells(config, source))
    times = [learner.update([acted.samples], 0.0)["update_s"] for _ in range(4)]
    return config.environments * config.steps / median(times[1:])


def training_speed(config: TrainConfig) -> float:
    """Decisions per second end to end, once actor and learner are under way."""
    from ganger.training.loop import train

    seen: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory(prefix="ganger-benchmark-") as directory:
        train(
            config,
            Path(directory) / "run",
            progress=lambda metrics: seen.append((metrics["elapsed_s"], metrics["decisions"])),
        )
    (first_s, first), (last_s, last) = seen[0] if len(seen) > 1 else (0.0, 0), seen[-1]
    return (last - first) / (last_s - first_s)


def peak_memory_mb() -> float:
    """The most memory this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6
