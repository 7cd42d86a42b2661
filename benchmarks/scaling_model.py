"""What measured costs mean for large runs: decisions a second of A actors and L learners.

    python benchmarks/scaling_model.py [--gigabits G] [--csv FILE]

The costs are those of `on_ray.py` on one machine (below); the network is assumed. Everything but
the costs is arithmetic: a projection, and no measurement. docs/scaling.md says what follows.

A run makes as many decisions a second as the least of what

- its actors make: A acting threads, each with a core of its own;
- its learners learn from: compute, plus adding up gradients with the other learners;
- its learners' processes can take: Ray calls, checksums and copies, one thread each;
- the network brings to them, and the parameters back.
"""

import argparse
import csv
from pathlib import Path
from typing import NamedTuple


class Costs(NamedTuple):
    """Measured, but for the last three."""

    acting_per_s: float = 20_000.0
    """Decisions a second of an acting thread."""
    on_ray: float = 0.95
    """Of that, what is left on Ray."""
    learning_per_s: float = 15_000.0
    """Decisions a second of a learner on one core."""
    second_core: float = 0.8
    """What each further core adds to that."""
    trajectory: int = 4_608
    """Decisions."""
    decision_bytes: float = 1_100.0
    """Of a trajectory, each decision's."""
    take_s: float = 4e-3
    """Of the learner's process for a trajectory: request, answer, checksum."""
    tell_s: float = 1e-3
    """Of the learner's process to bring new parameters to one more process."""
    gradient_bytes: float = 180_000.0
    add_up_s: float = 1e-3
    """Two learners on one machine, for a gradient step."""
    gather_s: float = 10e-6
    """Of a decision, before a GPU can compute with it."""
    operations: float = 2.0e6
    """Of a decision, forward and backward, floating point."""
    epochs: int = 2
    minibatch: int = 256
    network_bytes_per_s: float = 1.25e9
    network_latency_s: float = 50e-6
    gpu_operations_per_s: float = 1e12
    """A tenth of a small GPU's: the layers are narrow."""


def adding_up_s(costs: Costs, learners: int) -> float:
    """A gradient over L learners: a ring, in which each sends its part 2 (L - 1) times."""
    if learners == 1:
        return 0.0
    rounds = 2 * (learners - 1)
    sent = rounds * costs.gradient_bytes / learners
    return costs.add_up_s + rounds * costs.network_latency_s + sent / costs.network_bytes_per_s


def bounds(costs: Costs, actors: int, learners: int, cores: int, gpu: bool) -> dict[str, float]:
    """Decisions a second that each part of a run can do."""
    if gpu:
        compute_s = costs.epochs * (
            costs.gather_s / cores + costs.operations / costs.gpu_operations_per_s
        )
    else:
        compute_s = 1 / (costs.learning_per_s * (1 + costs.second_core * (cores - 1)))
    steps = costs.epochs / costs.minibatch  # for each of its own decisions
    learner_s = compute_s + steps * adding_up_s(costs, learners)
    # Every update takes one trajectory of each thread and tells each process the result.
    process_s = (costs.take_s + costs.tell_s) / costs.trajectory
    return {
        "actors": actors * costs.acting_per_s * costs.on_ray,
        "learners": learners / learner_s,
        "their processes": learners / process_s,
        "network": learners * costs.network_bytes_per_s / costs.decision_bytes,
    }


def knee(costs: Costs, learners: int, cores: int, gpu: bool) -> tuple[int, float, str]:
    """The most actors that are of use, the decisions a second with them, and what bounds it."""
    limits = bounds(costs, 1, learners, cores, gpu)
    one = limits.pop("actors")
    name = min(limits, key=lambda part: limits[part])
    return max(1, round(limits[name] / one)), limits[name], name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gigabits", type=float, default=10.0, help="of each learner's network")
    parser.add_argument("--csv", type=Path, help="write the projection there, too")
    given = parser.parse_args()
    costs = Costs(network_bytes_per_s=given.gigabits * 1e9 / 8)
    kinds = [("1 core", 1, False), ("8 cores", 8, False), ("GPU, 8 cores", 8, True)]
    print("The knee: actors (cores) that keep the learners busy\n")
    print(f"{'learners':>8}" + "".join(f"{name:>42}" for name, *_ in kinds))
    for learners in (1, 2, 4, 8, 16, 32, 64):
        row = f"{learners:8}"
        for _, cores, gpu in kinds:
            actors, rate, why = knee(costs, learners, cores, gpu)
            row += f"{actors:9,} for {rate / 1e6:6.2f} M/s, by {why:15}"
        print(row)
    print("\nDecisions a second, millions, learners of 8 cores each; in brackets what bounds it\n")
    counts = (1, 2, 4, 8, 16, 32, 64)
    print(f"{'actors':>8}" + "".join(f"{f'{n} learners':>24}" for n in counts))
    rows = []
    for actors in (10, 30, 100, 300, 1_000, 3_000, 10_000):
        line = f"{actors:8,}"
        for learners in counts:
            limits = bounds(costs, actors, learners, 8, False)
            name = min(limits, key=lambda part: limits[part])
            rows.append((actors, learners, round(limits[name]), name))
            line += f"{limits[name] / 1e6:9.2f} {f'[{name}]':>14}"
        print(line)
    if given.csv:
        with given.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("actors", "learners", "decisions_per_s", "bound"), *rows])


if __name__ == "__main__":
    main()
