"""What a cluster that schedules itself looks like to a scheduler that only watches.

A driver in the shadow changes nothing: it tells what happened, as to a `Ledger`, and asks what
there would have been to decide. Executors that ended a task, or idle, count as on offer until the
cluster gives them their next task.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ganger.simulator.observation import JobObservation, Observation, StageObservation


@dataclass(eq=False)
class _Stage:
    id: str
    parents: set[str] = field(default_factory=set)
    tasks: int = 0
    launched: int = 0
    finished: int = 0
    total_s: float = 0.0


@dataclass(eq=False)
class _Job:
    id: str
    arrival_s: float
    stages: dict[str, _Stage] = field(default_factory=dict)


class Shadow:
    """The jobs of a cluster, and how far they are."""

    def __init__(self) -> None:
        self.executors = 0
        self.version = 0
        self.ended: list[str] = []
        """Jobs that have ended, to be emptied by the driver."""
        self._jobs: dict[str, _Job] = {}

    def add_tasks(
        self, job: str, stage: str, parents: Sequence[str], count: int, now_s: float
    ) -> None:
        """Tasks were submitted; parents are told first."""
        known = self._jobs.setdefault(job, _Job(job, now_s))
        found = known.stages.setdefault(stage, _Stage(stage))
        found.tasks += count
        before = list(known.stages)
        # Stages are listed as they came: an edge from a later one would be a ring, or out of order.
        place = before.index(stage)
        found.parents.update(one for one in parents if one in before[:place])

    def remove_tasks(self, job: str, stage: str) -> None:
        """A task that was not started is not wanted any more."""
        if job in self._jobs:
            self._jobs[job].stages[stage].tasks -= 1
            self._end(job)

    def task_started(self, job: str, stage: str) -> None:
        """The cluster gave it an executor."""
        if job in self._jobs:
            self._jobs[job].stages[stage].launched += 1

    def task_failed(self, job: str, stage: str) -> None:
        """It must run again."""
        if job in self._jobs:
            self._jobs[job].stages[stage].launched -= 1

    def task_finished(self, job: str, stage: str, took_s: float) -> None:
        """It has ended."""
        if job in self._jobs:
            found = self._jobs[job].stages[stage]
            found.finished += 1
            found.total_s += took_s
            self._end(job)

    def result_lost(self, job: str, stage: str) -> None:
        """A finished task must run again."""
        if job in self._jobs:
            found = self._jobs[job].stages[stage]
            found.finished -= 1
            found.launched -= 1

    def timings(self) -> list[tuple[str, str, int, float]]:
        """(job, stage, finished tasks, their seconds together)."""
        return [
            (job.id, stage.id, stage.finished, stage.total_s)
            for job in self._jobs.values()
            for stage in job.stages.values()
        ]

    def observation(self, now_s: float) -> Observation | None:
        """What there would be to decide now; None: nothing. Estimates are 0."""
        running = sum(
            stage.launched - stage.finished
            for job in self._jobs.values()
            for stage in job.stages.values()
        )
        jobs = tuple(
            _observed(job)
            for job in self._jobs.values()
            if any(s.tasks for s in job.stages.values())
        )
        free = self.executors - running
        if free <= 0 or not any(job.schedulable for job in jobs):
            return None
        self.version += 1
        return Observation(
            version=self.version,
            time_s=now_s,
            executors=self.executors,
            on_offer=free,
            source_job=None,
            idle=free,
            jobs=jobs,
        )

    def _end(self, name: str) -> None:
        if all(stage.finished >= stage.tasks for stage in self._jobs[name].stages.values()):
            del self._jobs[name]
            self.ended.append(name)


def _observed(job: _Job) -> JobObservation:
    left = {stage.id: stage.tasks - stage.launched for stage in job.stages.values()}
    stages = tuple(
        StageObservation(
            id=stage.id,
            parents=tuple(
                s.id for s in job.stages.values() if s.id in stage.parents and s.tasks > 0
            ),
            tasks=stage.tasks,
            launched=stage.launched,
            finished=stage.finished,
            committed=0,
            moving=0,
            executors=stage.launched - stage.finished,
            estimated_task_s=0.0,
            schedulable=left[stage.id] > 0 and all(left[one] <= 0 for one in stage.parents),
        )
        for stage in job.stages.values()
        if stage.tasks > 0
    )
    held = sum(stage.executors for stage in stages)
    return JobObservation(
        id=job.id, arrival_s=job.arrival_s, executors=held, supply=held, stages=stages
    )
