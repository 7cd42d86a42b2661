"""Ganger learns how to schedule a computing cluster from that cluster's own workload."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Decision",
    "GangerError",
    "Job",
    "Observation",
    "PerTask",
    "Pool",
    "Result",
    "Scheduler",
    "Stage",
    "Wave",
    "Waves",
    "Workload",
    "__version__",
    "evaluate",
    "load_policy",
    "load_scheduler",
    "load_source",
    "parse_scheduler",
    "random_workload",
    "read_workload",
    "simulate",
    "tune",
    "write_workload",
]

_HOMES = {
    "ganger.errors": ("GangerError",),
    "ganger.evaluation": ("evaluate", "tune"),
    "ganger.planning": ("load_scheduler",),
    "ganger.policy.checkpoint": ("load_policy",),
    "ganger.schedulers": ("parse_scheduler",),
    "ganger.simulator.observation": ("Decision", "Observation"),
    "ganger.simulator.simulate": ("Cluster", "Result", "Scheduler", "simulate"),
    "ganger.workload": (
        "Job",
        "PerTask",
        "Pool",
        "Stage",
        "Wave",
        "Waves",
        "Workload",
        "load_source",
        "random_workload",
        "read_workload",
        "write_workload",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is public when it is asked for: the compiler is heavy, and `--help` is not."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ganger' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from ganger.errors import GangerError
    from ganger.evaluation import evaluate
    from ganger.evaluation.tune import tune
    from ganger.planning import load_scheduler
    from ganger.policy.checkpoint import load_policy
    from ganger.schedulers import parse_scheduler
    from ganger.simulator.observation import Decision, Observation
    from ganger.simulator.simulate import Cluster, Result, Scheduler, simulate
    from ganger.workload import (
        Job,
        PerTask,
        Pool,
        Stage,
        Wave,
        Waves,
        Workload,
        load_source,
        random_workload,
        read_workload,
        write_workload,
    )
