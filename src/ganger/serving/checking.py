"""Whether an observation that came from outside makes sense, before compiled code relies on it."""

import math

from ganger.errors import ObservationError
from ganger.simulator.observation import JobObservation, Observation, StageObservation

EXECUTORS = 100_000
JOBS = 10_000
STAGES = 100_000
"""Most of them in an observation: what decides keeps room for each."""
_LARGEST = 2**31 - 1


def check_observation(observation: Observation) -> None:
    """Look at counts, references and order.

    Raises:
        ObservationError: the first thing that is wrong, and where.
    """
    _whole("executors", observation.executors, 1, EXECUTORS)
    _whole("on_offer", observation.on_offer, 0, observation.executors)
    _whole("idle", observation.idle, 0, observation.executors)
    _whole("version", observation.version, 0, 2**63 - 1)
    _whole("executor_class", observation.executor_class, 0, 63)
    _number("time_s", observation.time_s, -math.inf)
    if len(observation.jobs) > JOBS:
        raise ObservationError(f"there are {len(observation.jobs)} jobs; expected {JOBS} at most")
    if (stages := sum(len(job.stages) for job in observation.jobs)) > STAGES:
        raise ObservationError(f"there are {stages} stages; expected {STAGES} at most")
    jobs = {job.id: job for job in observation.jobs}
    if len(jobs) < len(observation.jobs):
        raise ObservationError("two jobs have the same id")
    if observation.source_job is not None and observation.source_job not in jobs:
        raise ObservationError(f"source_job is {observation.source_job!r}; there is no such job")
    if observation.source_job is not None:
        held = jobs[observation.source_job].executors
        _whole(
            f"on_offer, of source_job {observation.source_job!r},", observation.on_offer, 0, held
        )
    if observation.source_stage is not None:
        if observation.source_job is None:
            raise ObservationError("source_stage is given without source_job")
        if not any(s.id == observation.source_stage for s in jobs[observation.source_job].stages):
            raise ObservationError(
                f"source_stage is {observation.source_stage!r}; job {observation.source_job!r} "
                f"has no such stage"
            )
    for job in observation.jobs:
        _check_job(job, observation)


def _check_job(job: JobObservation, observation: Observation) -> None:
    where = f"job {job.id!r}"
    _number(f"{where}: arrival_s", job.arrival_s, -math.inf)
    _whole(f"{where}: executors", job.executors, 0, observation.executors)
    _whole(f"{where}: supply", job.supply, job.executors, observation.executors)
    if not job.stages:
        raise ObservationError(f"{where} has no stages")
    before: dict[str, StageObservation] = {}
    for stage in job.stages:
        here = f"{where}, stage {stage.id!r}"
        if stage.id in before:
            raise ObservationError(f"{here} is there twice")
        _whole(f"{here}: tasks", stage.tasks, 1, _LARGEST)
        _whole(f"{here}: launched", stage.launched, 0, stage.tasks)
        _whole(f"{here}: finished", stage.finished, 0, stage.launched)
        for name in ("committed", "moving", "executors"):
            _whole(f"{here}: {name}", getattr(stage, name), 0, observation.executors)
        _number(f"{here}: estimated_task_s", stage.estimated_task_s, 0)
        for name in ("cores", "memory"):
            _number(f"{here}: {name}", getattr(stage, name), 0)
        if stage.limit_s is not None:
            _number(f"{here}: limit_s", stage.limit_s, 0)
        if stage.started_s is not None:
            _number(f"{here}: started_s", stage.started_s, -math.inf)
        for parent in stage.parents:
            if parent not in before:
                raise ObservationError(
                    f"{here}: its parent {parent!r} does not come before it; "
                    f"stages are listed in topological order"
                )
        if stage.schedulable:
            _check_schedulable(here, stage, before, observation)
        before[stage.id] = stage


def _check_schedulable(
    here: str, stage: StageObservation, before: dict[str, StageObservation], seen: Observation
) -> None:
    if stage.demand <= 0:
        raise ObservationError(f"{here} is schedulable, but could use no executor")
    for parent in stage.parents:
        if stage.gang and before[parent].finished < before[parent].tasks:
            raise ObservationError(
                f"{here} is a gang and schedulable, but its parent {parent!r} is not done"
            )
        if before[parent].demand > 0:
            raise ObservationError(
                f"{here} is schedulable, but its parent {parent!r} could still use executors"
            )
    if stage.gang and stage.tasks > seen.on_offer:
        raise ObservationError(
            f"{here} is a gang of {stage.tasks} and schedulable; {seen.on_offer} are on offer"
        )
    if stage.gang and seen.source_job is not None:
        raise ObservationError(
            f"{here} is a gang and schedulable, but the executors on offer are those of a job"
        )


def _whole(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ObservationError(f"{what} is {value}; expected {least} to {most}")


def _number(what: str, value: float, least: float) -> None:
    if not math.isfinite(value) or value < least:
        expected = "a number" if least == -math.inf else f"{least:g} or more"
        raise ObservationError(f"{what} is {value}; expected {expected}")
