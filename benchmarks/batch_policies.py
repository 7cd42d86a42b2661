"""Learned policies for batch jobs beside backfilling, paired by window of the log.

    python benchmarks/batch_policies.py [--against SCHEDULER,...] [--episodes N] [--draws N] RUN ...

The runs are of one log and one setting, with a training seed each. Every scheduler runs on the same
windows of the log's last 20 %; a sampled policy does so several times, with other draws.
Differences are the policy's figure less the other's, window by window, with the standard error over
windows. Pooled: of each window, the mean over draws and runs first.

Untrained is the policy that the run began with. Sampled, it is as good as a draw of one of the jobs
that fit, each as likely; its most probable action is an arbitrary order, another one for each seed.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger import streams
from ganger.evaluation import JobLists
from ganger.evaluation.metrics import bounded_slowdown, standard_error
from ganger.policy.checkpoint import SavedPolicy, read_policy
from ganger.policy.layout import aligned_zeros, initial_vector
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import parse_schedulers
from ganger.simulator.simulate import Cluster, CompiledScheduler
from ganger.streams import Stream
from ganger.training.config import TrainConfig
from ganger.training.run_directory import RunDirectory
from ganger.warmup import compile_policy
from ganger.workload import load_source

AGAINST = "fcfs:backfill=easy,sjf:backfill=easy,f1:backfill=easy,saf:backfill=easy,cpf,srpt"
"""On batch jobs the last two take the shortest and the smallest of those that fit."""


class Figures(NamedTuple):
    """Of one scheduler: [draws, windows, jobs]."""

    slowdown: NDArray[np.float64]
    wait_s: NDArray[np.float64]


def untrained(config: TrainConfig, policy: SavedPolicy, sample: bool) -> PolicyScheduler:
    """What the learner of that run began with."""
    vector = aligned_zeros(len(policy.vector))
    vector[:] = initial_vector(streams.rng(config.seed, Stream.LEARNER), policy.messages)
    return PolicyScheduler(vector, messages=policy.messages, sample=sample)


def difference(mine: list[Figures], other: list[Figures]) -> str:
    """Of the mean bounded slowdown, over runs and then windows."""
    each = [
        one.slowdown.mean(axis=(0, 2)) - against.slowdown.mean(axis=(0, 2))
        for one, against in zip(mine, other, strict=True)
    ]
    of_windows = np.mean(each, axis=0)
    return f"{of_windows.mean():+.2f} +- {standard_error(of_windows):.2f}"


def print_row(name: str, of: Figures, differences: list[str]) -> None:
    wait = of.wait_s
    print(
        f"{name:28}{of.slowdown.mean():9.2f}{wait.mean():10,.0f}{np.percentile(wait, 95):10,.0f}"
        f"{wait.max():10,.0f}  {'  '.join(f'{d:>18}' for d in differences)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--against", default=AGAINST)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--draws", type=int, default=10)
    given = parser.parse_args()
    configs = [RunDirectory.open(run).config(TrainConfig) for run in given.runs]
    policies = [read_policy(run) for run in given.runs]
    config = configs[0]
    (cell,) = config.cells
    compile_policy()
    source = load_source(config.workload)
    lists = [
        JobLists(
            source,
            cluster=Cluster(executors=cell[0], move_delay_s=config.move_delay_s),
            jobs=config.jobs,
            interarrival_s=cell[1],
            seed=seed,  # of what a policy draws; windows of a log are the same for all
        )
        for seed in range(given.draws)
    ]
    windows = lists[0].first(given.episodes)

    def figures(schedulers: list[CompiledScheduler], draws: int = 1) -> list[Figures]:
        drawn = [of.all_outcomes(schedulers, windows) for of in lists[:draws]]
        jct_s = np.stack([outcomes.jct_s for outcomes in drawn], axis=1)
        wait_s = np.stack([outcomes.wait_s for outcomes in drawn], axis=1)
        return [
            Figures(bounded_slowdown(0.0, wait, jct), wait)
            for jct, wait in zip(jct_s, wait_s, strict=True)
        ]

    heuristics = parse_schedulers(given.against)
    beaten = figures(list(heuristics))
    modes = {
        "argmax": (False, [p.scheduler() for p in policies]),
        "sampled": (True, [p.scheduler(sample=True) for p in policies]),
    }
    print(f"{len(windows)} windows of {config.jobs} jobs, {cell[0]} executors: {config.workload}")
    columns = ["untrained", *map(str, heuristics)]
    print(f"{'':67}  bounded slowdown less that of ...")
    head = f"{'':28}{'slowdown':>9}{'wait':>10}{'p95 wait':>10}{'longest':>10}"
    print(f"{head}  {'  '.join(f'{c:>18}' for c in columns)}")
    for scheduler, of in zip(heuristics, beaten, strict=True):
        print_row(str(scheduler), of, [])
    for mode, (sample, schedulers) in modes.items():
        draws = given.draws if sample else 1
        first = [untrained(c, p, sample) for c, p in zip(configs, policies, strict=True)]
        mine, before = figures(list(schedulers), draws), figures(list(first), draws)
        for c, of, start in zip(configs, mine, before, strict=True):
            print_row(f"untrained, seed {c.seed}, {mode}", start, [])
            to = [difference([of], [other]) for other in (start, *beaten)]
            print_row(f"policy, seed {c.seed}, {mode}", of, to)
        pooled = [difference(mine, before), *(difference(mine, [b] * len(mine)) for b in beaten)]
        together = [
            Figures(*map(np.concatenate, zip(*many, strict=True))) for many in (before, mine)
        ]
        print_row(f"untrained, pooled, {mode}", together[0], [])
        print_row(f"policy, pooled, {mode}", together[1], pooled)


if __name__ == "__main__":
    main()
