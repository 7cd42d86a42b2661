"""Small training set-ups: jobs where the order matters, and actors that act in them."""

import torch

from ganger.simulator.table import build_table
from ganger.training.actor import Actor
from ganger.training.cells import measure_cells
from ganger.training.config import LearningConfig, TrainConfig
from ganger.training.learner import Learner
from ganger.workload import Job, Pool, Stage, Workload, write_workload

torch.set_num_threads(1)  # as `train` does: repeatable, and quick for small batches


def two_stages(tasks, task_s):
    """A stage, and one after it."""
    return tuple(
        Stage(id=name, parents=parents, task_count=tasks, durations=Pool((task_s,)))
        for name, parents in (("x", ()), ("y", ("x",)))
    )


SHORT, LONG = two_stages(1, 1.0), two_stages(5, 3.0)


def config(**settings):
    """Eight short or long jobs on one executor, about as fast as they can be done."""
    learning = LearningConfig(
        learning_rate=3e-3,
        final_learning_rate=1e-3,
        minibatch=256,
        discount_time_s=100.0,
        lambda_time_s=30.0,
    )
    given = {
        "executors": 1, "jobs": 8, "interarrival_s": 6.0, "move_delay_s": 0.0,
        "environments": 8, "steps": 32, "actors": 1, "minutes": 5.0, "learning": learning,
        "validate_every_s": 0.0,
    }  # fmt: skip
    return TrainConfig(**(given | settings))


def learner(given=None, vector=None):
    """A learner of that configuration, which says all times."""
    given = given or config()
    return Learner(given, measure_cells(given, None), vector)


def table():
    return build_table([SHORT, LONG])


def actor(**settings):
    return Actor(config(**settings), table(), 0)


def write_toy_workload(path):
    """The same jobs as a native file, for `train`."""
    jobs = [Job(id=f"{i}", arrival_s=float(i), stages=LONG if i % 2 else SHORT) for i in range(10)]
    write_workload(path, Workload(tuple(jobs)))
    return f"jobs:{path}"
