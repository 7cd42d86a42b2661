"""Compare mean job completion times with those that two other simulators measured.

    python benchmarks/peer_agreement.py DIRECTORY

DIRECTORY holds data/tpch (Decima's TPC-H profiles) and reference (peer_results.csv and the job
lists that it was measured on). The peers are decima-sim and spark-sched-sim.

On each job list, Ganger runs once with every duration seed. Peers draw durations in the order of
events and Ganger by task, so they agree on average only: the mean over job lists must lie within a
band around the peers' for a deterministic scheduler, within 3 standard errors for a random one.
"""

import argparse
import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import (
    Cluster,
    CompiledScheduler,
    Episode,
    load_episode,
    prepare,
    result_of,
    run_compiled,
)
from ganger.workload import job_list_workload, load_source

PEER_NAMES = {
    ("decima-sim", "spark_fifo"): "fifo",
    ("decima-sim", "dynamic_partition"): "fair",
    ("decima-sim", "random"): "random",
    ("spark-sched-sim", "fifo"): "fifo",
    ("spark-sched-sim", "fair"): "fair",
    ("spark-sched-sim", "random"): "random",
}
BAND = {10: 0.015, 50: 0.025}
DURATION_SEEDS = 8


class Line(NamedTuple):
    """One scheduler and cluster size."""

    scheduler: str
    executors: int
    lists: int
    mean_jct_s: float
    peers_s: float
    """Mean of the peers' means over the same lists."""
    band: float
    """How far the ratio may be from 1."""

    @property
    def ratio(self) -> float:
        return self.mean_jct_s / self.peers_s

    @property
    def agrees(self) -> bool:
        return abs(self.ratio - 1.0) <= self.band


def agreement(directory: Path) -> Iterator[Line]:
    """Simulate the reference lists, and put the results beside the peers'."""
    peers: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    with open(directory / "reference" / "peer_results.csv", newline="") as file:
        for row in csv.DictReader(file):
            name = PEER_NAMES.get((row["simulator"], row["scheduler"]))
            if name is not None and row["jobs"] == "50":
                of_peers = peers.setdefault((name, int(row["executors"])), {})
                of_peers.setdefault(row["simulator"], {})[int(row["seed"])] = float(
                    row["mean_jct_s"]
                )
    source = load_source(f"tpch:{directory / 'data' / 'tpch'}")
    path = directory / "reference" / "workloads"
    episodes = {
        s: prepare(job_list_workload(source, path / f"jobs50_seed{s}.json")) for s in range(8)
    }
    for (name, executors), of_peers in sorted(peers.items(), key=lambda item: item[0][::-1]):
        seeds = sorted(set.intersection(*(set(of_seed) for of_seed in of_peers.values())))
        scheduler = parse_scheduler(name)
        ours = np.array(
            [
                [mean_jct_s(episodes[s], executors, scheduler, k) for k in range(DURATION_SEEDS)]
                for s in seeds
            ]
        )
        theirs = np.array([[of_seed[s] for s in seeds] for of_seed in of_peers.values()])
        band = BAND[executors]
        if name == "random":
            # How far means over these lists can be apart by luck: ours, and one run a list of each
            # peer, if a peer's run varies as ours do.
            per_run = ours.std(axis=1, ddof=1)
            variance = np.sum(per_run**2) * (1 / DURATION_SEEDS + 1 / len(theirs)) / len(seeds) ** 2
            band = 3 * math.sqrt(variance) / theirs.mean()
        yield Line(name, executors, len(seeds), ours.mean(), theirs.mean(), float(band))


def mean_jct_s(episode: Episode, executors: int, scheduler: CompiledScheduler, seed: int) -> float:
    """Of one run."""
    state = load_episode(episode, Cluster(executors=executors), seed=seed)
    run_compiled(state, episode.table, scheduler, seed)
    return result_of(state).mean_jct_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, help="holds data/tpch and reference")
    print(f"{'executors':>9} {'scheduler':9} lists    ganger     peers   ratio    band")
    for line in agreement(parser.parse_args().directory):
        print(
            f"{line.executors:9} {line.scheduler:9} {line.lists:5} {line.mean_jct_s:8.2f}s "
            f"{line.peers_s:8.2f}s {line.ratio:7.4f} {line.band:7.4f} "
            f"{'agrees' if line.agrees else 'DIFFERS'}"
        )


if __name__ == "__main__":
    main()
