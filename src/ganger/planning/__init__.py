"""Schedulers that look ahead: a policy's likely decisions, tried out in the simulator."""

from ganger.planning.load import load_scheduler
from ganger.planning.scheduler import PlanningScheduler, load_planner

__all__ = ["PlanningScheduler", "load_planner", "load_scheduler"]
