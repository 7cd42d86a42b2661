"""Scheduling rounds outside the simulator: decide until nobody is on offer any more.

The rules are the simulator's (docs/simulator.md), so that a scheduler is asked the same questions
by a driver as there.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

from msgspec.structs import replace

from ganger.errors import SchedulerError
from ganger.simulator.observation import Decision, JobObservation, Observation, StageObservation


@runtime_checkable
class Decides(Protocol):
    """Whatever can be asked: a heuristic, a policy, a scheduler of one's own."""

    def decide(self, observation: Observation) -> Decision | None:
        """The next stage to serve; None leaves the executors on offer idle."""


def problem_with(observation: Observation, decision: Any) -> str | None:
    """Why a scheduler must not answer this; None: it may."""
    if not isinstance(decision, Decision):
        return f"it answered with a {type(decision).__name__}; expected a Decision or None"
    choices = [(job.id, stage.id) for job in observation.jobs for stage in job.schedulable]
    if (decision.job, decision.stage) not in choices:
        some = ", ".join(f"{stage!r} of {job!r}" for job, stage in choices[:5])
        more = ", ..." if len(choices) > 5 else ""
        return (
            f"stage {decision.stage!r} of job {decision.job!r} cannot be chosen; "
            f"there are {some or 'none'}{more}"
        )
    limit: Any = decision.limit  # annotated, but nobody checked
    if isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 1:
        return f"limit is {limit!r}; expected a whole number from 1"
    return None


def amount(observation: Observation, decision: Decision) -> int:
    """Executors on offer that a decision gives to its stage: at least 1; a gang gets all."""
    job, stage = _chosen(observation, decision)
    if stage.gang:
        return stage.tasks
    count = decision.limit - job.supply
    if job.id == observation.source_job:
        count += observation.on_offer
    return max(min(count, stage.demand, observation.on_offer), 1)


def after(observation: Observation, decision: Decision) -> Observation:
    """What is left of the round when a legal decision was taken.

    Executors that are given away are promised to their stage; a gang's start at once. Whether
    executors of a class suit a stage that only now becomes schedulable is not known here: they do.
    """
    chosen_job, chosen = _chosen(observation, decision)
    count = amount(observation, decision)
    on_offer = observation.on_offer - count
    if chosen.gang:
        served = replace(
            chosen,
            launched=chosen.tasks,
            executors=chosen.tasks,
            started_s=observation.time_s,
            schedulable=False,
        )
    else:
        served = replace(chosen, committed=chosen.committed + count, schedulable=False)
    stages = tuple(served if stage is chosen else stage for stage in chosen_job.stages)
    if served.demand <= 0 and not observation.work_conserving:
        stages = _with_children(stages, served.id)
    comes = 0 if chosen_job.id == observation.source_job else count
    job = replace(
        chosen_job,
        supply=chosen_job.supply + comes,
        executors=chosen_job.executors + (count if chosen.gang else 0),
        stages=stages,
    )
    jobs = tuple(_fitting(job if one is chosen_job else one, on_offer) for one in observation.jobs)
    return replace(
        observation,
        version=observation.version + 1,
        on_offer=on_offer,
        idle=observation.idle - (count if chosen.gang else 0),
        jobs=jobs,
    )


def decide_round(
    decide: Callable[[Observation], Decision | None], observation: Observation
) -> list[Decision]:
    """All decisions about the executors on offer, in order.

    Args:
        decide: of a scheduler.
        observation: at the beginning of the round.

    Raises:
        SchedulerError: it answered something that it must not.
    """
    decisions: list[Decision] = []
    while observation.on_offer > 0 and any(job.schedulable for job in observation.jobs):
        decision = decide(observation)
        if decision is None:
            break
        if (problem := problem_with(observation, decision)) is not None:
            raise SchedulerError(problem)
        decisions.append(decision)
        observation = after(observation, decision)
    return decisions


def executors_given(observation: Observation, decisions: Sequence[Decision]) -> list[int]:
    """How many executors each decision of a round gives to its stage.

    Raises:
        SchedulerError: a decision must not be taken.
    """
    given = []
    for decision in decisions:
        if (problem := problem_with(observation, decision)) is not None:
            raise SchedulerError(problem)
        if observation.on_offer == 0:
            raise SchedulerError(f"it gives executors to {decision}, but none is left on offer")
        given.append(amount(observation, decision))
        observation = after(observation, decision)
    return given


def _chosen(
    observation: Observation, decision: Decision
) -> tuple[JobObservation, StageObservation]:
    job = next(job for job in observation.jobs if job.id == decision.job)
    return job, next(stage for stage in job.stages if stage.id == decision.stage)


def _with_children(
    stages: tuple[StageObservation, ...], parent: str
) -> tuple[StageObservation, ...]:
    """A stage has all the executors it can use: what comes after it may be served ahead of time."""
    demand = {stage.id: stage.demand for stage in stages}
    return tuple(
        replace(stage, schedulable=True)
        if parent in stage.parents
        and not stage.gang  # which waits until its parents are done
        and stage.demand > 0
        and all(demand.get(one, 0) <= 0 for one in stage.parents)
        else stage
        for stage in stages
    )


def _fitting(job: JobObservation, on_offer: int) -> JobObservation:
    """Without the gangs that no longer fit."""
    if not any(stage.gang and stage.schedulable and stage.tasks > on_offer for stage in job.stages):
        return job
    return replace(
        job,
        stages=tuple(
            replace(stage, schedulable=False)
            if stage.gang and stage.schedulable and stage.tasks > on_offer
            else stage
            for stage in job.stages
        ),
    )
