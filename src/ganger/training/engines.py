"""Where a learner gets trajectories from: its actors, on the engine of the run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ganger.simulator.table import Table
from ganger.training.actor import Actor, run_actor
from ganger.training.config import TrainConfig
from ganger.training.exchange import TrajectorySource
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue
from ganger.training.exchange.turns import Turns


def opened(config: TrainConfig) -> Any:
    """A context: what the engine needs for as long as the run lasts.

    Raises:
        ConfigError: if no Ray cluster answers at the address.
        MissingExtraError: if Ray is not installed.
    """
    if config.engine == "threads":
        return nullcontext()
    from ganger.training.exchange.ray import cluster

    return cluster(config)


def actors_here(config: TrainConfig, table: Table, generation: int, places: range) -> list[Actor]:
    """Actors of this process; none where they are on Ray."""
    if config.engine != "threads":
        return []
    return [Actor(config, table, index, generation) for index in places]


@contextmanager
def acting(
    config: TrainConfig,
    table: Table,
    store: ParameterStore,
    actors: list[Actor],
    generation: int,
    places: range,
) -> Iterator[TrajectorySource]:
    """Actors at work; they take parameters from `store`. At the end they stop."""
    if config.sync:
        yield Turns([actor.act for actor in actors], store.newest)
    elif config.engine == "threads":
        # One trajectory of each actor may wait: the learner always has work, lag stays near one.
        with _threads(actors, store, TrajectoryQueue(len(actors), store)) as queue:
            yield queue
    else:
        from ganger.training.exchange.ray import RayExchange

        exchange = RayExchange(config, table, store, generation, places=places)
        try:
            yield exchange
        finally:
            exchange.close()


@contextmanager
def _threads(
    actors: list[Actor], store: ParameterStore, queue: TrajectoryQueue
) -> Iterator[TrajectoryQueue]:
    """A thread for each actor."""
    threads = [
        threading.Thread(target=run_actor, args=(actor, store, queue), name=f"actor-{actor.index}")
        for actor in actors
    ]
    for thread in threads:
        thread.start()
    try:
        yield queue
    finally:
        queue.close()
        for thread in threads:
            thread.join()
