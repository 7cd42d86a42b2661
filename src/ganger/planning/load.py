"""Any scheduler by its name."""

import os
from pathlib import Path

from ganger.errors import SchedulerError
from ganger.planning.scheduler import load_planner
from ganger.policy.checkpoint import PRETRAINED, load_policy
from ganger.schedulers import SCHEDULERS, parse_scheduler
from ganger.simulator.simulate import CompiledScheduler


def load_scheduler(
    name: str | Path, *, sample: bool = False, plan: bool = False
) -> CompiledScheduler:
    """A heuristic, a trained policy, or the one that comes with Ganger.

    Args:
        name: a heuristic as `srpt:cap=sqrt,c=1`; a checkpoint or run directory; or `general`.
        sample: let a policy draw its actions; else it takes the most probable one.
        plan: let a policy try out its likely actions in the simulator before it takes one.

    Raises:
        SchedulerError: no such scheduler, or settings that do not go with it.
        CheckpointError: as `load_policy`.
    """
    if sample and plan:
        raise SchedulerError("a plan takes the best action that it tried out: it does not sample")
    if str(name).partition(":")[0].strip() in SCHEDULERS:
        if sample or plan:
            raise SchedulerError(f"only learned schedulers sample or plan; {name} is none")
        return parse_scheduler(str(name))
    if not (str(name) in PRETRAINED or os.sep in str(name) or Path(name).exists()):
        raise SchedulerError(
            f"scheduler {str(name)!r} is unknown; there are {', '.join(SCHEDULERS)}, "
            f"{', '.join(PRETRAINED)} and the paths of training runs"
        )
    return load_planner(name) if plan else load_policy(name, sample=sample)
