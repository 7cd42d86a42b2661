"""Schedulers that look ahead: a policy's likely decisions, tried out in the simulator."""

from ganger.planning.scheduler import PlanningScheduler, load_planner

__all__ = ["PlanningScheduler", "load_planner"]
