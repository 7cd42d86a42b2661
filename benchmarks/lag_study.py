"""What policy lag costs: equal decisions, learned from when they are 0, 1, 4, 16 updates old.

    python benchmarks/lag_study.py [--workload SPEC] [--decisions N] [--lags 0,1,4,16] [--lists N]

Acting and learning take turns, so that the lag is exactly what is asked for: an update learns from
what an actor did with the parameters of so many updates before.
"""

import argparse
from collections import deque

import numpy as np
from numpy.typing import NDArray

from ganger.evaluation import Contender, evaluate
from ganger.policy.scheduler import PolicyScheduler
from ganger.training.actor import Actor
from ganger.training.cells import measure_cells
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.learner import Learner, NonFiniteError
from ganger.training.objective import training_table
from ganger.warmup import compile_training
from ganger.workload import load_source


def learned(config: TrainConfig, lag: int) -> tuple[NDArray[np.float32], dict[str, float]]:
    """The policy's weights after so many decisions, and what the last update said."""
    source = load_source(config.workload)
    learner = Learner(config, measure_cells(config, source))
    actor = Actor(config, training_table(config, source), 0)
    assert config.decisions is not None
    updates = max(config.decisions // (config.environments * config.steps), 1)
    published = deque([learner.policy.vector()], maxlen=lag + 1)
    said: dict[str, float] = {}
    for update in range(updates):
        oldest = Parameters(published[0], max(update - lag, 0))
        said = learner.update([actor.act(oldest).samples], update / updates)
        published.append(learner.policy.vector())
    vector = learner.policy.vector()
    learner.close()
    return vector, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", default="synthetic")
    parser.add_argument("--decisions", type=int, default=1_500_000)
    parser.add_argument("--lags", default="0,1,4,16")
    parser.add_argument("--lists", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    config = TrainConfig(workload=given.workload, decisions=given.decisions, seed=given.seed)
    compile_training()
    source = load_source(given.workload)
    print("lag  argmax         sampled        importance cut  KL of an update")
    for lag in map(int, given.lags.split(",")):
        try:
            vector, said = learned(config, lag)
        except NonFiniteError as error:
            print(f"{lag:3d}  diverged: {error}", flush=True)
            continue
        policy, sampled = PolicyScheduler(vector), PolicyScheduler(vector, sample=True)
        rows = evaluate(
            source,
            [Contender(policy, "learned", "argmax"), Contender(sampled, "learned", "sampled")],
            executors=50,
            jobs=50,
            interarrival_s=25.0,
            episodes=given.lists,
            seed=7,
        )
        ratios = "  ".join(f"{row.ratio:.3f} +- {row.standard_error:.3f}" for row in rows)
        print(
            f"{lag:3d}  {ratios}  {said['importance_clipped']:14.2f}  {said['kl']:.4f}", flush=True
        )


if __name__ == "__main__":
    main()
