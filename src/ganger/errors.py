"""The errors Ganger raises on purpose.

GangerError
├── WorkloadError       a job, a workload file or a workload specification is wrong
├── SimulationError     a scheduler or a cluster asks for something impossible
├── ObservationError    an observation from outside is not one of a cluster
├── SchedulerError      a scheduler's name or parameters are wrong
├── ConfigError         a setting is wrong, unknown or contradictory
├── CheckpointError     a checkpoint or run directory cannot be read
├── TrainingError       a run cannot go on: a loss is not finite, an actor died
├── ConformanceError    a scheduler or reader breaks what Ganger expects of one
└── MissingExtraError   an optional package is not installed

The command line prints one line for any of them and exits with 2. A programming mistake stays a
TypeError or an AssertionError.
"""


class GangerError(Exception):
    """Base of every error Ganger raises on purpose."""


class WorkloadError(GangerError):
    """A job, a workload file or a workload specification is wrong."""


class SimulationError(GangerError):
    """A scheduler or a cluster asks for something impossible."""


class ObservationError(GangerError):
    """An observation from outside is not one of a cluster."""


class SchedulerError(GangerError):
    """A scheduler's name or parameters are wrong."""


class ConfigError(GangerError):
    """A setting is wrong, unknown or contradictory."""


class CheckpointError(GangerError):
    """A checkpoint or run directory cannot be read."""


class TrainingError(GangerError):
    """A training run cannot go on."""


class ConformanceError(GangerError):
    """A scheduler or reader breaks what Ganger expects of one: which check, on what, and how.

    Attributes:
        check: name of the check that failed, as docs/extending.md lists them.
        on: the case it failed on.
        problem: what was seen, and what was expected.
        reproduce: Python that shows it again.
    """

    def __init__(self, check: str, on: str, problem: str, reproduce: str) -> None:
        super().__init__(f"{check}, on {on}: {problem}\nto reproduce: {reproduce}")
        self.check, self.on, self.problem, self.reproduce = check, on, problem, reproduce


class MissingExtraError(GangerError):
    """An optional package is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs an optional package: pip install 'ganger[{extra}]'")
