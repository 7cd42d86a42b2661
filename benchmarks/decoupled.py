"""What decoupling brings: acting and learning at once, against taking turns, in equal time.

    python benchmarks/decoupled.py [--workload SPEC] [--minutes M] [--actors 1,2,4] [--lists N]

Both use the same actors, learner and settings. Taking turns is lock step: actors act, then the
learner learns, then they act again, each on one core at a time.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from ganger.evaluation import Contender, evaluate
from ganger.policy.checkpoint import read_policy
from ganger.training.config import TrainConfig
from ganger.training.loop import train
from ganger.warmup import compile_training
from ganger.workload import load_source


def trained(config: TrainConfig, run: Path) -> tuple[dict[str, Any], float]:
    """The metrics of a run's last update, and the seconds that the run took."""
    last: dict[str, Any] = {}
    begin = time.perf_counter()
    train(config, run, progress=last.update)
    return last, time.perf_counter() - begin


def in_turns(config: TrainConfig, minutes: float) -> TrainConfig:
    """A synchronous run of about so many minutes: its limit has to be told in decisions."""
    with tempfile.TemporaryDirectory() as directory:
        probe = msgspec.structs.replace(config, sync=True, minutes=None, decisions=200_000)
        last, _ = trained(probe, Path(directory) / "run")
    decisions = int(last["decisions_per_s"] * minutes * 60)
    return msgspec.structs.replace(config, sync=True, minutes=None, decisions=decisions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", default="synthetic")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--actors", default="1,2,4")
    parser.add_argument("--lists", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    compile_training()
    source = load_source(given.workload)
    base = TrainConfig(
        workload=given.workload, minutes=given.minutes, seed=given.seed, validate_every_s=0.0
    )
    runs = [("in turns, 1 actor", in_turns(base, given.minutes))]
    for actors in map(int, given.actors.split(",")):
        name = f"at once, {actors} actor{'s' if actors > 1 else ''}"
        runs.append((name, msgspec.structs.replace(base, actors=actors)))
    print(f"{'':20}  minutes  decisions  decisions/s  lag   argmax          sampled")
    for name, config in runs:
        with tempfile.TemporaryDirectory() as directory:
            last, seconds = trained(config, Path(directory) / "run")
            policy = read_policy(Path(directory) / "run")
        rows = evaluate(
            source,
            [
                Contender(policy.scheduler(), "learned", "argmax"),
                Contender(policy.scheduler(sample=True), "learned", "sampled"),
            ],
            executors=50,
            jobs=50,
            interarrival_s=25.0,
            episodes=given.lists,
            seed=7,
        )
        ratios = "  ".join(f"{row.ratio:.3f} +- {row.standard_error:.3f}" for row in rows)
        print(
            f"{name:20}  {seconds / 60:7.1f}  {last['decisions']:9,}  "
            f"{last['decisions_per_s']:11,.0f}  {last['lag_mean']:3.1f}  {ratios}",
            flush=True,
        )


if __name__ == "__main__":
    main()
