"""What becomes a job of the workload, as the log tells it. Times are milliseconds."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stage:
    """A stage as one unit knows it; it ran there if it was submitted there."""

    id: int
    tasks: int
    parents: tuple[int, ...] | None
    """None: the log does not say."""
    rdd: int | None
    """What it computes: stages of one RDD have the same output."""
    barrier: bool
    jobs: list[int]
    """Spark jobs of the unit that list it."""
    where: str
    ran: bool = False
    submitted_ms: int | None = None
    completed_ms: int | None = None
    done: set[int] = field(default_factory=set)
    """Partitions, or indices of tasks, that have succeeded."""
    kept: int = 0
    """Durations that came of them."""


@dataclass(slots=True)
class Unit:
    """One Spark job, or the Spark jobs of one SQL execution."""

    name: str
    where: str
    execution: bool
    submitted_ms: int | None = None
    finished_ms: int | None = None
    results: list[str] = field(default_factory=list)
    jobs: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    """Spark job -> its submission and completion, where the log has them."""
    stages: dict[int, Stage] = field(default_factory=dict)
    parents: dict[int, set[int]] = field(default_factory=dict)
    """The edges between the stages; known when the unit has ended."""
    lost: int = 0
    """Stages that ran, or would have run, of which the log has no duration."""
