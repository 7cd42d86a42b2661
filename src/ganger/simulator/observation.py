"""What a scheduler sees, and what it answers: plain values that any engine can give.

The simulator makes an Observation from its State (`simulator/observing.py`); a driver of a real
cluster makes one from what the cluster reports. Nothing here needs the compiler.
"""

import msgspec


class StageObservation(msgspec.Struct, frozen=True):
    """A stage of a job in the system."""

    id: str
    parents: tuple[str, ...]
    tasks: int
    launched: int
    finished: int
    committed: int
    """Executors promised to it that still work elsewhere."""
    moving: int
    """Executors on their way to it."""
    executors: int
    """Executors running its tasks."""
    estimated_task_s: float
    schedulable: bool
    """Whether a decision may choose it now."""
    gang: bool = False
    """All its tasks start together: it gets all its executors or cannot be chosen."""
    limit_s: float | None = None
    """The run time that was asked for."""
    started_s: float | None = None
    """When a gang that runs started."""
    cores: float = 0.0
    """That its executors must have."""
    memory: float = 0.0

    @property
    def requested_s(self) -> float:
        """What was asked for one task: its limit, else its estimate."""
        return self.estimated_task_s if self.limit_s is None else self.limit_s

    @property
    def demand(self) -> int:
        """Executors it could still use."""
        return self.tasks - self.launched - self.committed - self.moving

    @property
    def remaining_work_s(self) -> float:
        """Estimated executor-seconds left; a running task counts half."""
        running = self.launched - self.finished
        return self.estimated_task_s * (self.tasks - self.launched + 0.5 * running)


class JobObservation(msgspec.Struct, frozen=True):
    """A job in the system, with all its stages in topological order."""

    id: str
    arrival_s: float
    executors: int
    """Executors bound to it."""
    supply: int
    """Executors bound to it, moving to it or committed to it: what a decision's limit counts."""
    stages: tuple[StageObservation, ...]

    @property
    def schedulable(self) -> tuple[StageObservation, ...]:
        """Stages a decision may choose now."""
        return tuple(stage for stage in self.stages if stage.schedulable)

    @property
    def remaining_work_s(self) -> float:
        """Estimated executor-seconds left."""
        return sum(stage.remaining_work_s for stage in self.stages)


class Observation(msgspec.Struct, frozen=True):
    """A cluster that waits for a decision."""

    version: int
    """Decisions made so far; a decision belongs to one version."""
    time_s: float
    executors: int
    """Executors in the whole cluster."""
    on_offer: int
    """Executors to decide about now."""
    source_job: str | None
    """The job whose executors they are; None: nobody's."""
    idle: int
    """Executors in pools."""
    jobs: tuple[JobObservation, ...]
    """By arrival."""
    source_stage: str | None = None
    """The stage of the source job that they run, or have just finished; None: they idle."""
    executor_class: int = 0
    """Of the executors on offer, by its place in the cluster's classes."""
    work_conserving: bool = False
    """Only stages whose parents are done can be chosen."""


class Decision(msgspec.Struct, frozen=True):
    """Give executors on offer to a stage, until its job has `limit` of them."""

    job: str
    stage: str
    limit: int
