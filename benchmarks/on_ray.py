"""Training on Ray beside threads: decisions a second, memory, transport, broadcast, recovery.

    python benchmarks/on_ray.py [--workload SPEC] [--seconds S] [--repeats N]

All on a local Ray of this machine, so what is measured is Ray's own overhead and no network's.
"""

import argparse
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

from ganger.evaluation.episodes import usable_cores
from ganger.policy.layout import aligned_zeros, critic_size, vector_size
from ganger.training.actor import Actor
from ganger.training.cells import measure_cells
from ganger.training.config import TrainConfig
from ganger.training.exchange import Header, Parameters
from ganger.training.exchange.local import ParameterStore
from ganger.training.exchange.packing import pack, unpack
from ganger.training.exchange.ray import RayExchange, cluster
from ganger.training.group import Together, meet, meeting_place, stay_on_this_machine
from ganger.training.learner import Learner
from ganger.training.loop import train
from ganger.training.objective import training_table
from ganger.training.samples import Samples
from ganger.warmup import compile_training
from ganger.workload import load_source

PER_THREAD = 48  # environments
GRADIENT = vector_size(False) + critic_size()


def settings(workload: str, seconds: float, **more: Any) -> TrainConfig:
    threads = more.get("actors", 1) * more.get("threads_per_actor", 1)
    return TrainConfig(
        workload=workload,
        environments=PER_THREAD * threads,
        minutes=seconds / 60,
        validate_every_s=0.0,
        **more,
    )


def training(config: TrainConfig) -> dict[str, Any]:
    """The metrics of the last update."""
    last: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        train(config, Path(directory) / "run", progress=last.update)
    return last


def acting(config: TrainConfig, seconds: float) -> dict[str, Any]:
    """Acting alone on Ray: the learner takes all that comes and learns nothing."""
    table = training_table(config, load_source(config.workload))
    with cluster(config):
        exchange = RayExchange(config, table, ParameterStore(vector()))
        try:
            while len(exchange.processes()) < config.actors:
                exchange.get(1, timeout_s=0.1)
            exchange.get(4 * config.acting_threads, timeout_s=60)
            begin, taken = time.perf_counter(), []
            while time.perf_counter() - begin < seconds:
                taken += [t.payload.seconds for t in exchange.get(1, timeout_s=1.0)]
            wall_s = time.perf_counter() - begin
            made = len(taken) * PER_THREAD * config.steps
            memory = [ray.get(s.handle.about.remote()).memory_mb for s in exchange._slots]
            before = exchange.processes()[0].pid
            os.kill(before, signal.SIGKILL)
            killed = time.perf_counter()
            while not any(t.header.generation for t in exchange.get(1, timeout_s=0.05)):
                pass
            back_s = time.perf_counter() - killed
        finally:
            exchange.close()
    return {
        "decisions_per_s": made / wall_s,
        "acting_share": sum(taken) / wall_s / config.acting_threads,
        "memory_mb": max(memory),
        "back_s": back_s,
    }


def acting_threads(config: TrainConfig, seconds: float) -> float:
    """The same with threads."""
    from threading import Thread

    table = training_table(config, load_source(config.workload))
    actors = [Actor(config, table, index) for index in range(config.actors)]
    parameters = Parameters(vector(), 0)
    made = [0] * config.actors

    def act(index: int) -> None:
        while time.perf_counter() < until:
            actors[index].act(parameters)
            made[index] += PER_THREAD * config.steps

    for actor in actors:
        for _ in range(4):
            actor.act(parameters)
    begin = time.perf_counter()
    until = begin + seconds
    threads = [Thread(target=act, args=(index,)) for index in range(config.actors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made) / (time.perf_counter() - begin)


def vector() -> np.ndarray:
    return aligned_zeros(vector_size(False))


def transport(config: TrainConfig) -> None:
    """What a trajectory costs on its way, step by step, on an idle machine."""
    actor = Actor(config, training_table(config, load_source(config.workload)), 0)
    for _ in range(4):
        acted = actor.act(Parameters(vector(), 0))
    packed, buffer = pack(Header(0, 0, 0, 0), acted)
    echo = ray.remote(num_cpus=0)(_Echo).remote(buffer)
    ray.get(echo.answer.remote())
    steps = {
        "acting": lambda: actor.act(Parameters(vector(), 0)),
        "packing": lambda: pack(Header(0, 0, 0, 0), acted),
        "Ray, request to answer": lambda: ray.get(echo.answer.remote()),
        "of that without a buffer": lambda: ray.get(echo.nothing.remote()),
        "checking and unpacking": lambda: unpack(packed, buffer),
    }
    print(f"\na trajectory of {PER_THREAD * config.steps:,} decisions has {buffer.nbytes:,} bytes")
    for name, step in steps.items():
        print(f"{name:25} {1e3 * median_s(step):8.2f} ms")


class _Echo:
    def __init__(self, buffer: np.ndarray) -> None:
        self._buffer = np.array(buffer)

    def answer(self) -> np.ndarray:
        return self._buffer

    def nothing(self) -> None:
        pass

    def take(self, reference: list[Any]) -> int:
        return int(ray.get(reference[0]).nbytes)


def broadcast(processes: list[int], sizes: list[int]) -> None:
    """Put parameters once, until all processes have them."""
    print("\nbroadcast, ms    " + "".join(f"{size / 1e6:10.1f} MB" for size in sizes))
    for count in processes:
        everybody = [ray.remote(num_cpus=0)(_Echo).remote(np.zeros(1)) for _ in range(count)]
        ray.get([one.nothing.remote() for one in everybody])

        def send(size: int, everybody: list[Any] = everybody) -> None:
            reference = [ray.put(np.zeros(size, np.uint8))]
            ray.get([one.take.remote(reference) for one in everybody])

        times = [1e3 * median_s(lambda size=size: send(size)) for size in sizes]  # type: ignore[misc]
        print(f"{count:4} processes   " + "".join(f"{t:13.1f}" for t in times))
        for one in everybody:
            ray.kill(one)


def learning(config: TrainConfig, cores: int) -> None:
    """One learner's decisions a second, by cores."""
    source = load_source(config.workload)
    actor = Actor(config, training_table(config, source), 0)
    for _ in range(4):
        acted = actor.act(Parameters(vector(), 0))
    print("\nlearning")
    for threads in sorted({1, cores}):
        learner = Learner(config, measure_cells(config, source), threads=threads)
        seconds = median_s(lambda learner=learner: learner.update([acted.samples], 0.5), 9)  # type: ignore[misc]
        print(f"{threads} threads    {config.steps * PER_THREAD / seconds:12,.0f} decisions/s")
        learner.close()
    samples = Samples([acted.samples])
    part = np.random.default_rng(0).permutation(samples.made)[:1024]
    gather_us = 1e6 * median_s(lambda: samples.gather(part)) / len(part)
    rows = [int(p[-1]) / len(p) for p in (samples.rows.stage_pointer, samples.rows.job_pointer)]
    print(f"gathering a minibatch for torch {gather_us:8.2f} us a decision")
    print("a decision has {:.1f} stages and {:.1f} jobs".format(*rows))


def add_up(rank: int, size: int, address: str, out: Any) -> None:
    """A learner of a group that only adds up what a gradient step adds up."""
    stay_on_this_machine()
    group = Together(meet(address, size), rank, size)
    sums = np.zeros(GRADIENT, np.float32)
    seconds = median_s(lambda: group.add_up(sums), 300)
    group.close()
    if rank == 0:
        out.send(seconds)


def all_reduce(sizes: list[int]) -> None:
    """A gradient summed over learners, all on this machine."""
    print("\nadding up a gradient")
    context = multiprocessing.get_context("spawn")
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            _, address = meeting_place(Path(directory), "", size)
            mine, its = context.Pipe()
            processes = [
                context.Process(target=add_up, args=(rank, size, address, its))
                for rank in range(size)
            ]
            for process in processes:
                process.start()
            print(f"{size} learners {1e3 * mine.recv():11.2f} ms for {4 * GRADIENT:,} bytes")
            for process in processes:
                process.join()


def median_s(step: Any, repeats: int = 25) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workload", default="synthetic")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", default="1,2,4", help="of a broadcast")
    given = parser.parse_args()
    compile_training()
    cores = usable_cores()
    print(f"{cores} cores; decisions/s")

    shapes = [(1, 1), (cores, 1), (1, cores)]
    print("\nacting alone     threads        Ray   acting   USS, MB   back after a kill, s")
    for actors, threads in shapes:
        for _ in range(given.repeats):
            both = {"actors": actors * threads}
            alone = acting_threads(settings(given.workload, 1, **both), given.seconds)
            on_ray = acting(
                settings(given.workload, 1, engine="ray", actors=actors, threads_per_actor=threads),
                given.seconds,
            )
            print(
                f"{actors} x {threads} threads {alone:12,.0f} {on_ray['decisions_per_s']:10,.0f} "
                f"{on_ray['acting_share']:8.0%} {on_ray['memory_mb']:9.0f} {on_ray['back_s']:8.1f}"
            )
    print("\ntraining         threads        Ray   lag mean, p95, max on Ray")
    for _ in range(given.repeats):
        alone = training(settings(given.workload, given.seconds))
        last = training(settings(given.workload, given.seconds, engine="ray"))
        print(
            f"1 x 1 threads {alone['decisions_per_s']:12,.0f} {last['decisions_per_s']:10,.0f} "
            f"{last['lag_mean']:8.1f} {last['lag_p95']:4.1f} {last['lag_max']:3}"
        )
    local = settings(given.workload, 1, engine="ray")
    with cluster(local):
        transport(local)
        learning(settings(given.workload, 1), cores)
        all_reduce([2, 4])
        broadcast([int(n) for n in given.processes.split(",")], [112_000, 1_000_000, 10_000_000])


if __name__ == "__main__":
    main()
