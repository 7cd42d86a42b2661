"""How much each job counts in the objective that a policy is trained for."""

import numpy as np

from ganger.errors import ConfigError
from ganger.evaluation.metrics import BOUND_S
from ganger.simulator.table import Table, build_log_table, build_table
from ganger.training.config import TrainConfig
from ganger.workload import (
    JobSource,
    arrivals_of,
    job_weights,
    template_users,
    template_weights,
)


def training_table(config: TrainConfig, source: JobSource) -> Table:
    """The distinct jobs that training draws, or the log, with their weights in the objective.

    Only ratios of weights matter. Their mean over the table is 1, so that costs, and what the
    critic sees of the jobs to come, keep their size.

    Raises:
        ConfigError: a weight is given to somebody who has no job there, or an episode has more jobs
            than the log.
    """
    if config.objective == "weighted":
        _refuse_strangers(config, template_users(source, config.part))
    own = config.interarrival_s is None
    arrivals = arrivals_of(source, config.part, None if own else 0.0)
    if isinstance(arrivals, tuple):
        if config.jobs > len(arrivals):
            raise ConfigError(
                f"{config.workload}: there are {len(arrivals)} jobs to train on, fewer than the "
                f"{config.jobs} of an episode; see jobs and interarrival_s"
            )
        table = build_log_table(arrivals, job_weights(arrivals, config.weights))
    else:
        weights = template_weights(source, config.part, config.weights)
        table = build_table(source.templates(config.part), weights)
    if config.objective == "slowdown":
        table.templates["weight"] = 1 / np.maximum(table.templates["path_s"], BOUND_S)
    table.templates["weight"] /= table.templates["weight"].mean()
    return table


def _refuse_strangers(config: TrainConfig, users: tuple[str | None, ...]) -> None:
    """A misspelt user would silently weigh nothing."""
    known = sorted({user for user in users if user is not None})
    for user in config.weights:
        if user not in known:
            there_are = f"its users are {', '.join(known)}" if known else "its jobs name no user"
            raise ConfigError(
                f"weights: {user} has no job to train on in {config.workload}; {there_are}"
            )
