"""Learned policies for batch jobs beside backfilling, paired by window of the log.

    python benchmarks/batch_policies.py [--against SCHEDULER,...] [--episodes N] [--seed N] RUN ...

The runs are of one log and one setting, with a training seed each. Every scheduler runs on the same
windows of the log's last 20 %. Differences are the policy's figure less the other's, window by
window, with the standard error over windows. Pooled: of each window, the mean over the runs first,
as the windows are the same for all of them. Untrained: the policy that the run began with.
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

AGAINST = "fcfs:backfill=easy,sjf:backfill=easy,f1:backfill=easy,saf:backfill=easy"


class Figures(NamedTuple):
    """Of one scheduler, in every window: [windows, jobs]."""

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
        one.slowdown.mean(axis=1) - against.slowdown.mean(axis=1)
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
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    configs = [RunDirectory.open(run).config(TrainConfig) for run in given.runs]
    policies = [read_policy(run) for run in given.runs]
    config = configs[0]
    (cell,) = config.cells
    compile_policy()
    lists = JobLists(
        load_source(config.workload),
        cluster=Cluster(executors=cell[0], move_delay_s=config.move_delay_s),
        jobs=config.jobs,
        interarrival_s=cell[1],
        seed=given.seed,
    )
    windows = lists.first(given.episodes)

    def figures(schedulers: list[CompiledScheduler]) -> list[Figures]:
        outcomes = lists.all_outcomes(schedulers, windows)
        return [
            Figures(bounded_slowdown(0.0, wait_s, jct_s), wait_s)
            for jct_s, wait_s in zip(outcomes.jct_s, outcomes.wait_s, strict=True)
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
        mine = figures(list(schedulers))
        before = figures([untrained(c, p, sample) for c, p in zip(configs, policies, strict=True)])
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
