"""What is known of the marked jobs of a Spark application, and what there is to decide.

A job is what runs inside one `ganger.spark.pool(...)`: usually one action, perhaps several. Until
Spark has been given an action, nobody knows its stages: they are what the user says they are, or
those of the last job of the kind, or a guess. No Spark in here.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ganger.errors import ConfigError
from ganger.serving.estimates import Estimates
from ganger.serving.records import SeenJob, SeenStage
from ganger.serving.spark.pools import Pool
from ganger.simulator.observation import JobObservation, Observation, StageObservation

TAG = "ganger-"
"""How the tags of Spark's jobs begin that are ours."""
_QUIET_S = 0.5
"""A job that has given Spark nothing to do for so long may compute by itself for long."""


@dataclass(eq=False)
class SparkStage:
    """A stage as Spark's status tracker shows it."""

    id: int
    tasks: int
    active: int = 0
    finished: int = 0
    busy_s: float = 0.0
    """That its tasks ran, together, as far as looking now and then tells."""
    begun: bool = False
    after: "SparkStage | None" = None
    """The stage whose end it waited for."""

    @property
    def finished_s(self) -> float:
        """That its finished tasks took; those that run are taken to be half done."""
        return self.busy_s * self.finished / max(self.finished + 0.5 * self.active, 1.0)

    @property
    def done(self) -> bool:
        """Whether all its tasks have ended well."""
        return self.finished >= self.tasks


@dataclass(eq=False)
class SparkJob:
    """What runs inside one `ganger.spark.pool(...)`."""

    name: str
    kind: str
    arrival_s: float
    tag: str
    """That Spark's jobs of it carry; there is no other such tag."""
    hint: tuple[int, ...] = ()
    """Tasks of its stages, as the user says."""
    pool: Pool | None = None
    """That it was given; None: it waits at the gate."""
    stages: dict[int, SparkStage] = field(default_factory=dict)
    """In the order in which they began; then those that have not."""
    active_s: float = 0.0
    """When Spark had something to do for it last."""

    def key(self, place: int) -> str:
        """Under which the durations of a stage are remembered."""
        return f"{self.kind}/{place}"


class Shapes:
    """The tasks of the stages of each kind's last job; kept in a file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        """Start with what a file holds.

        Raises:
            ConfigError: it holds something else.
        """
        self._path = path
        self._kinds: dict[str, tuple[int, ...]] = {}
        if path is not None and path.exists():
            try:
                self._kinds = msgspec.json.decode(
                    path.read_bytes(), type=dict[str, tuple[int, ...]]
                )
            except (OSError, msgspec.DecodeError) as error:
                raise ConfigError(f"{path}: holds no shapes of jobs: {error}") from None

    def of(self, kind: str) -> tuple[int, ...]:
        """Empty: nobody knows."""
        return self._kinds.get(kind, ())

    def learn(self, kind: str, tasks: tuple[int, ...]) -> None:
        """A job has ended well."""
        if tasks:
            self._kinds[kind] = tasks

    def save(self) -> None:
        """Write them to their file, which is whole at any moment.

        Raises:
            OSError: it cannot be written.
        """
        if self._path is not None:
            part = self._path.with_name(self._path.name + ".part")
            part.write_bytes(msgspec.json.encode(self._kinds))
            os.replace(part, self._path)


class Book:
    """The marked jobs; to be used by one thread at a time."""

    def __init__(self, estimates: Estimates, shapes: Shapes) -> None:
        self.jobs: dict[str, SparkJob] = {}
        """By arrival."""
        self.executors = 1
        self.others = 0
        """Executors that run tasks of jobs that are not marked."""
        self._estimates, self._shapes = estimates, shapes
        self._version = 0

    def quiet(self, job: SparkJob, now_s: float) -> bool:
        """Whether a job was let through, but has given Spark nothing to do for a while."""
        return job.pool is not None and now_s - job.active_s > _QUIET_S

    @property
    def waiting(self) -> list[SparkJob]:
        """Jobs at the gate."""
        return [job for job in self.jobs.values() if job.pool is None]

    def observation(
        self, now_s: float, *, among: Collection[SparkJob] | None = None, ahead: bool = False
    ) -> Observation:
        """What there is to decide: whom the executors are to serve, as their tasks end.

        All executors are on offer that run no unmarked task: Spark takes none away, but when its
        task ends, each follows the pools.

        Args:
            now_s: on the clock of arrivals.
            among: only these jobs; None: all.
            ahead: offer stages, too, that can start as soon as tasks that run have ended.
        """
        self._version += 1
        free = max(self.executors - self.others, 0)
        chosen = [job for job in self.jobs.values() if among is None or job in among]
        jobs = (self._observed(job, now_s, ahead) for job in chosen)
        return Observation(
            version=self._version,
            time_s=now_s,
            executors=self.executors,
            on_offer=free,
            source_job=None,
            idle=free,
            jobs=tuple(job for job in jobs if job is not None),
            work_conserving=not ahead,
        )

    def seen(self, job: SparkJob, finish_s: float) -> SeenJob:
        """For the records; of a stage, the mean of its tasks is known."""
        done = [stage for stage in self._begun(job) if stage.finished > 0]
        ids = {stage: str(place) for place, stage in enumerate(done)}
        stages = tuple(
            SeenStage(
                id=ids[stage],
                parents=() if stage.after not in ids else (ids[stage.after],),
                durations_s=(stage.finished_s / stage.finished,) * stage.finished,
                name=job.key(place),
            )
            for place, stage in enumerate(done)
        )
        # Names come again, in this run and in later ones; in a workload they must not.
        unique = f"{job.name}#{job.tag.removeprefix(TAG)}"
        return SeenJob(unique, job.arrival_s, finish_s, stages)

    def learn(self, job: SparkJob) -> None:
        """A job has ended well: remember its shape, and how long its tasks took."""
        done = [stage for stage in self._begun(job) if stage.done]
        for place, stage in enumerate(done):
            self._estimates.learn(job.key(place), stage.finished, stage.finished_s)
        self._shapes.learn(job.kind, tuple(stage.tasks for stage in done))

    @staticmethod
    def _begun(job: SparkJob) -> list[SparkStage]:
        return [stage for stage in job.stages.values() if stage.begun]

    def _observed(self, job: SparkJob, now_s: float, ahead: bool) -> JobObservation | None:
        """None: there is nothing left of it, as far as is known."""
        expected = job.hint or self._shapes.of(job.kind) or (self.executors,)
        # What Spark lists it knows; what comes after that is expected.
        known = list(job.stages.values())
        known += [SparkStage(-1, tasks) for tasks in expected[len(known) :]]
        if all(stage.done for stage in known):
            return None
        quiet = self.quiet(job, now_s)
        stages: list[StageObservation] = []
        left: dict[str, tuple[bool, bool]] = {}  # by id: done, saturated
        for place, stage in enumerate(known):
            launched = min(stage.finished + stage.active, stage.tasks)
            before: SparkStage | None = known[place - 1] if place else None
            if stage.begun:
                before = stage.after
            parents = (str(known.index(before)),) if before in known[:place] else ()
            parent_done, parent_saturated = left[parents[0]] if parents else (True, True)
            may = (parent_saturated if ahead else parent_done) and (stage.begun or not quiet)
            left[str(place)] = (stage.done, launched >= stage.tasks)
            stages.append(
                StageObservation(
                    id=str(place),
                    parents=parents,
                    tasks=stage.tasks,
                    launched=launched,
                    finished=min(stage.finished, launched),
                    committed=0,
                    moving=0,
                    executors=0,
                    estimated_task_s=self._estimates.estimate(
                        job.key(place), stage.finished, stage.finished_s
                    ).task_s,
                    schedulable=launched < stage.tasks and may,
                )
            )
        return JobObservation(
            id=job.name, arrival_s=job.arrival_s, executors=0, supply=0, stages=tuple(stages)
        )
