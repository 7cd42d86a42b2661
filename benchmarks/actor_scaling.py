"""How acting grows with actor threads, by itself and beside a learner.

    python benchmarks/actor_scaling.py [--workload SPEC] [--seconds S] [--actors 1,2,4]

Alone, each actor only acts: no queue, nobody waits. Beside the learner, it is `ganger train`: the
learner takes a core, and whoever is slower is waited for.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ganger import streams
from ganger.evaluation.episodes import usable_cores
from ganger.policy.layout import initial_vector
from ganger.simulator.table import Table, build_table
from ganger.training.actor import Actor
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.loop import train
from ganger.warmup import compile_training
from ganger.workload import load_source

PER_ACTOR = 48  # environments


def acting_alone(config: TrainConfig, table: Table, seconds: float) -> float:
    """Decisions per second of all actors together."""
    parameters = Parameters(
        initial_vector(streams.rng(config.seed, streams.Stream.LEARNER), config.messages), 0
    )
    actors = [Actor(config, table, index) for index in range(config.actors)]
    for actor in actors:
        actor.act(parameters)  # grows its memory
    made = [0] * config.actors
    until = time.perf_counter() + seconds

    def act(index: int) -> None:
        while time.perf_counter() < until:
            actors[index].act(parameters)
            made[index] += PER_ACTOR * config.steps

    threads = [threading.Thread(target=act, args=(index,)) for index in range(config.actors)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made) / (time.perf_counter() - begin)


def beside_the_learner(config: TrainConfig) -> dict[str, Any]:
    """The metrics of the last update of a short training run."""
    last: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        train(config, Path(directory) / "run", progress=last.update)
    return last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workload", default="synthetic")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--actors", default="1,2", help="numbers of threads")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table = build_table(load_source(given.workload).templates("train"))
    compile_training()
    print(f"{usable_cores()} cores; decisions/s")
    print("actors     alone   training   learner idle   actors idle   lag")
    for actors in map(int, given.actors.split(",")):
        config = TrainConfig(
            workload=given.workload,
            actors=actors,
            environments=PER_ACTOR * actors,
            minutes=given.seconds / 60,
            validate_every_s=0.0,
            seed=given.seed,
        )
        alone = acting_alone(config, table, given.seconds)
        last = beside_the_learner(config)
        print(
            f"{actors:6} {alone:9,.0f} {last['decisions_per_s']:10,.0f} "
            f"{last['learner_idle_share']:14.0%} {last['actor_idle_share']:13.0%} "
            f"{last['lag_mean']:5.1f}"
        )


if __name__ == "__main__":
    main()
