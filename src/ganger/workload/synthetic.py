"""The built-in workload: DAG jobs shaped like TPC-H queries on Spark, made from random numbers.

Every job depends on (seed, index) only. What is modelled, and why:

- A job is a query plan: an in-tree of stages that ends in one stage, with few extra edges. Stages
  without parents scan an input and have as many tasks as it has splits; most others read a shuffle
  and have its default number of tasks.
- Work is heavy-tailed, and jobs of more tasks tend to have more of it.
- An executor's first task of a stage also warms up (compiled code, caches), and a fresh executor
  starts up before that; the more executors a job has, the more its tasks disturb each other.

Durations are evenly spaced quantiles, not draws: a short list carries its distribution, and a
first task is slower than a later one in every stage, not only on average.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.random import Generator

from ganger import streams
from ganger.errors import WorkloadError
from ganger.streams import Stream
from ganger.workload.model import Stage, Wave, Waves


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticConfig:
    """What the synthetic jobs look like; the defaults resemble TPC-H on Spark."""

    stages_min: int = 2
    stages_max: int = 18

    stages_alpha: float = 0.9
    stages_beta: float = 1.1
    """The stage count is beta-distributed between its limits; alpha < beta favours small jobs."""

    depth_max: int = 9
    """Longest chain of stages."""

    depth_share: tuple[float, float] = (0.45, 0.9)
    """The longest chain takes a share of the job's stages between these; lower is wider."""

    extra_edges: float = 0.05
    """Chance that a stage feeds a second one; higher makes jobs less like trees."""

    shuffle_tasks: int = 200
    """Tasks of a stage that reads a shuffle (Spark's default number of partitions)."""

    shuffle_share: float = 0.84
    """Share of such stages with that many tasks; the rest have 1 to 20."""

    scan_tasks_median: float = 20.0
    scan_tasks_sigma: float = 1.6
    """Tasks of a stage without parents: lognormal median and spread."""

    tasks_max: int = 600
    """Most tasks of a stage."""

    work_median_s: float = 580.0
    """Executor-seconds of a job of typical size (`tasks_typical` tasks)."""

    tasks_typical: float = 1000.0

    work_exponent: float = 0.8
    """Work grows with tasks ** this; 0: unrelated, 1: tasks are equally long in all jobs."""

    work_sigma: float = 1.0
    """Spread of the work of jobs of equal size (lognormal); higher is heavier-tailed."""

    work_max_s: float = 7600.0
    """Heavier jobs are drawn again."""

    stage_sigma: float = 0.9
    """Spread of task durations between the stages of a job (lognormal)."""

    levels: tuple[int, ...] = (5, 10, 20, 40, 50, 60, 80, 100)
    """Executor counts that have durations of their own."""

    slowdown_per_executor: float = 0.0225
    """Tasks are slower by this fraction for each executor above the first level."""

    warm_up_s: float = 0.25
    """Median of what an executor's first task of a stage costs on top of a later one."""

    start_up_s: float = 0.3
    """Median of what a fresh executor's first task costs on top of that."""

    overhead_sigma: float = 0.6
    """Spread of both costs between stages (lognormal)."""

    overhead_max: float = 6.0
    """A first or a fresh task takes at most this many times its stage's mean task longer."""

    task_sigma: tuple[float, float] = (0.1, 0.6)
    """Spread of the tasks of a stage (lognormal), uniform between these from stage to stage."""

    fresh_values: int = 2
    first_values: int = 3
    rest_values: int = 5
    """Durations listed per kind and level."""


DEFAULT = SyntheticConfig()


def synthetic_stages(seed: int, index: int, config: SyntheticConfig = DEFAULT) -> tuple[Stage, ...]:
    """Make the stages of job `index` of the workload `seed`; both are 0 or more."""
    if seed < 0 or index < 0:
        raise WorkloadError(f"synthetic: seed {seed}, index {index}; expected 0 or more")
    rng = streams.rng(seed, Stream.SYNTHETIC, index)
    parents = _draw_plan(rng, config)
    tasks = np.array([_draw_tasks(rng, bool(above), config) for above in parents])
    mean_task_s = _draw_mean_task_s(rng, tasks, config)
    durations = _draw_durations(rng, tasks, mean_task_s, config)
    return tuple(
        Stage(
            id=str(i),
            parents=tuple(map(str, above)),
            task_count=int(tasks[i]),
            durations=durations[i],
            estimated_task_s=round(float(mean_task_s[i]), 6),
        )
        for i, above in enumerate(parents)
    )


def _draw_plan(rng: Generator, config: SyntheticConfig) -> list[list[int]]:
    """Draw the parents of each stage; stages are listed parents first, the final one last."""
    spread = config.stages_max - config.stages_min + 1
    count = config.stages_min + int(spread * rng.beta(config.stages_alpha, config.stages_beta))
    count = min(count, config.stages_max)
    depth = int(np.rint(count * rng.uniform(*config.depth_share)))
    depth = max(min(depth, count, config.depth_max), min(2, count))
    # Height is the distance to the final stage. One chain takes every height, the rest branch off.
    branches = rng.integers(1, max(depth, 2), count - depth)
    heights = np.sort(np.concatenate([np.arange(depth), branches]))[::-1].tolist()
    parents: list[list[int]] = [[] for _ in range(count)]
    for i, height in enumerate(heights):
        below = [j for j in range(i + 1, count) if heights[j] == height - 1]
        if not below:
            continue  # the final stage
        child = below[int(rng.integers(len(below)))]
        parents[child].append(i)
        if rng.random() < config.extra_edges:
            lower = [j for j in range(i + 1, count) if heights[j] < height and j != child]
            if lower:
                parents[lower[int(rng.integers(len(lower)))]].append(i)
    return parents


def _draw_tasks(rng: Generator, has_parents: bool, config: SyntheticConfig) -> int:
    if not has_parents:
        splits = config.scan_tasks_median * rng.lognormal(0.0, config.scan_tasks_sigma)
        return int(np.clip(np.rint(splits), 1, config.tasks_max))
    if rng.random() < config.shuffle_share:
        return min(config.shuffle_tasks, config.tasks_max)
    return int(rng.integers(1, 21))


def _draw_mean_task_s(rng: Generator, tasks: Any, config: SyntheticConfig) -> Any:
    """Draw the mean task duration of each stage, so that they make up the work of the job."""
    typical_s = config.work_median_s * (tasks.sum() / config.tasks_typical) ** config.work_exponent
    work_s = min(typical_s, config.work_max_s)
    for _ in range(100):
        drawn_s = typical_s * rng.lognormal(0.0, config.work_sigma)
        if drawn_s <= config.work_max_s:
            work_s = drawn_s
            break
    relative = rng.lognormal(0.0, config.stage_sigma, len(tasks))
    return relative * (work_s / (relative * tasks).sum())


def _draw_durations(
    rng: Generator, tasks: Any, mean_s: Any, config: SyntheticConfig
) -> list[Waves]:
    """Draw the durations of each stage; averaged over the levels, its mean task takes `mean_s`.

    Args:
        tasks: tasks of each stage, [stages].
        mean_s: seconds of a mean task of each stage, [stages].
    """
    overheads_s = rng.lognormal(0.0, config.overhead_sigma, (2, len(tasks)))
    overheads_s *= np.array([[config.warm_up_s], [config.start_up_s]])
    warm_up, start_up = np.minimum(overheads_s / mean_s, config.overhead_max)
    sigma = rng.uniform(*config.task_sigma, len(tasks))

    levels = np.array(config.levels)
    slowdown = 1.0 + config.slowdown_per_executor * (levels - levels[0])
    first_share = np.minimum(levels, tasks[:, None]) / tasks[:, None]  # one per executor
    rest_s = mean_s / (slowdown * (1.0 + warm_up[:, None] * first_share)).mean(axis=1)
    kinds = (
        (rest_s * (1.0 + warm_up + start_up), config.fresh_values),
        (rest_s * (1.0 + warm_up), config.first_values),
        (rest_s, config.rest_values),
    )
    # Each [stages, levels, values]; microseconds are precise enough and keep files short.
    fresh_s, first_s, rest_s = (
        np.round(slowdown[:, None] * (centre_s * _quantiles(count, sigma)).T[:, None], 6).tolist()
        for centre_s, count in kinds
    )
    return [
        Waves(
            levels=tuple(
                Wave(
                    executors=executors,
                    fresh_s=tuple(fresh_s[stage][level]),
                    first_s=tuple(first_s[stage][level]),
                    rest_s=tuple(rest_s[stage][level]),
                )
                for level, executors in enumerate(config.levels)
            )
        )
        for stage in range(len(tasks))
    ]


def _quantiles(count: int, sigma: Any) -> Any:
    """Evenly spaced quantiles of lognormal distributions, scaled to mean 1: [count, stages]."""
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])
    values = np.exp(np.outer(normal, sigma))
    return values / values.mean(axis=0)
