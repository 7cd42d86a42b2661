"""The settings of a training run."""

from typing import Literal, get_args

from ganger.config import Config
from ganger.errors import ConfigError
from ganger.simulator.objectives import OBJECTIVES

EXECUTORS = 50
"""Of the cluster that is meant unless another is named."""
DEFAULT_MINUTES = 10.0
Part = Literal["train", "all"]
Engine = Literal["threads", "ray"]
Device = Literal["cpu", "cuda"]
LIMITS = ("minutes", "decisions", "updates", "target_ratio", "patience")
"""Settings that say when a run ends. A resumed run may have others; all else stays as it was."""
REASONS = {
    "time": "the time is up",
    "decisions": "that is as many decisions as wanted",
    "updates": "that is as many updates as wanted",
    "target": "the target ratio is reached",
    "plateau": "validation has not improved for as long as it had patience",
    "stopped": "stopped as asked",
}
"""Why a run ended, in words."""
OWN_FIGURES = {
    "mean": "mean JCT",
    "weighted": "weighted mean JCT",
    "slowdown": "mean slowdown",
    "tail": "root mean square JCT",
    "makespan": "makespan",
}
"""What each objective makes small."""
PLACES = ("engine", "address", "device")
"""Settings that say where a run acts and learns; these may change, too."""


class LearningConfig(Config, frozen=True, kw_only=True):
    """How the learner learns."""

    learning_rate: float = 2e-3
    """Adam's step size at the start; falls geometrically."""
    final_learning_rate: float = 2e-4
    """Adam's step size at the end."""
    entropy_weight: float = 0.02
    """Reward for an undecided policy at the start; falls geometrically."""
    final_entropy_weight: float = 0.001
    """Reward for an undecided policy at the end."""
    discount_time_s: float | None = None
    """Costs this far ahead weigh 1/e: longer sees further, but is noisier. Unless given, 25 times
    the square root of the mean job completion time under fair sharing."""
    lambda_time_s: float | None = None
    """Returns are measured over about this long, then estimated: longer is less biased, noisier.
    Unless given, 0.15 of the discount time."""
    clip: float = 0.2
    """How far an update may move an action's probability ratio from 1."""
    epochs: int = 2
    """Passes over each batch."""
    minibatch: int = 256
    """Decisions of each learner in a gradient step."""
    rho_bar: float = 1.0
    """Largest importance weight in the value target; lower is more biased, steadier."""
    c_bar: float = 1.0
    """Largest importance weight that carries later errors back."""
    kl_limit: float = 0.05
    """An update stops early once the policy has moved this far (mean KL divergence)."""
    value_weight: float = 0.5
    """Weight of the critic's loss."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "final_learning_rate", "discount_time_s", "lambda_time_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; expected more than 0")
        for name in ("epochs", "minibatch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected 1 or more")


class TrainConfig(Config, frozen=True, kw_only=True):
    """A training run: the workload, the cluster, who acts, how long, and how it learns."""

    workload: str = "synthetic"
    """What jobs are drawn from: synthetic, tpch:DIR or files, such as a log."""
    part: Part = "train"
    """Which jobs of a file to train on: train, the first 80 %, which leaves the rest for tests; or
    all, of a file that was divided before."""
    executors: int | tuple[int, ...] = EXECUTORS
    """Executors in each simulated cluster. Several numbers: one policy for clusters of all these
    sizes, under each of the mean times between arrivals."""
    move_delay_s: float = 2.0
    """Seconds an executor needs to change jobs."""
    reconsider: bool = False
    """After jobs arrived, offer executors again that end a task, as the Dask driver does; else they
    stay with their stage while it has tasks."""
    work_conserving: bool = False
    """Let no executor wait for a stage that cannot start yet, as the Dask driver does."""
    jobs: int = 50
    """Jobs in an episode."""
    interarrival_s: float | tuple[float, ...] | None = None
    """Mean seconds between two random arrivals; 0: all jobs at once. Several numbers: as for
    executors. Unless given, an episode is so many jobs of the file in a row, with their own
    arrivals; jobs of no file arrive every 25 s."""
    objective: str = "mean"
    """What to make small: mean, weighted, tail (job completion times), slowdown or makespan."""
    weights: dict[str, float] = {}  # noqa: RUF012  # msgspec copies it for every instance
    """How much the jobs of a user count in the weighted objective; of any other user, 1."""
    engine: Engine = "threads"
    """Where actors act: threads of this process, or ray, processes of a Ray cluster."""
    address: str | None = None
    """The Ray cluster to join, as auto or HOST:PORT; unless given, a local one for this run."""
    actors: int = 1
    """Acting threads, or with Ray, processes. The learner needs a core of its own."""
    threads_per_actor: int = 1
    """Acting threads in each process of a Ray cluster."""
    learners: int = 1
    """Processes that learn as one, each from its share of the actors, with minibatches of its own
    size; the actors are shared out evenly."""
    device: Device = "cpu"
    """Where learners compute: cpu, or cuda, a GPU each."""
    environments: int = 96
    """Simulated clusters, shared out among the acting threads."""
    steps: int = 96
    """Decisions each environment makes between two updates."""
    minutes: float | None = None
    """End after this much wall time, compiling excluded; 10 if no decisions or updates are given.
    Of several limits, the first one met ends the run."""
    decisions: int | None = None
    """End after this many decisions."""
    updates: int | None = None
    """End after this many updates of the learner."""
    target_ratio: float | None = None
    """End once the validation ratio (objective relative to fair's) is this or lower."""
    patience: int | None = None
    """End after this many validations in a row without a new best."""
    validate_every_s: float = 30.0
    """Seconds between two validations on held-out job lists; 0: never. In a synchronous run there
    are twenty in all."""
    sync: bool = False
    """Act and learn in turns: slower, but a run repeats to the bit, also when it is resumed."""
    seed: int = 0
    """Of everything random."""
    messages: bool = False
    """Message passing along the DAG; without it the path features carry the structure."""
    learning: LearningConfig = LearningConfig()

    def __post_init__(self) -> None:
        for name in ("jobs", "actors", "threads_per_actor", "learners", "environments", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected 1 or more")
        for executors, interarrival_s in self.cells:
            if executors < 1:
                raise ConfigError(f"executors is {executors}; expected 1 or more")
            if interarrival_s is not None and not 0 <= interarrival_s < float("inf"):
                raise ConfigError(f"interarrival_s is {interarrival_s}; expected 0 or more")
        if self.part not in get_args(Part):
            raise ConfigError(f"part is {self.part!r}; there are {', '.join(get_args(Part))}")
        if not self.cells:
            raise ConfigError("executors and interarrival_s need a value each")
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"objective is {self.objective!r}; there are {', '.join(OBJECTIVES)}")
        if self.objective == "weighted" and not self.weights:
            raise ConfigError("objective weighted needs weights: how much the jobs of a user count")
        if self.objective != "weighted" and self.weights:
            raise ConfigError(f"weights are for objective weighted; objective is {self.objective}")
        for user, weight in self.weights.items():
            if not 0 < weight < float("inf"):
                raise ConfigError(f"weights: {user} has {weight}; expected more than 0")
        if self.engine not in get_args(Engine):
            raise ConfigError(f"engine is {self.engine!r}; there are {', '.join(get_args(Engine))}")
        if self.engine == "threads":
            if self.threads_per_actor != 1:
                raise ConfigError("threads_per_actor is for engine ray; here each actor is one")
            if self.address is not None:
                raise ConfigError("address names a Ray cluster; it needs engine ray")
        elif self.sync:
            raise ConfigError("a synchronous run takes turns in one process; engine ray does not")
        if self.device not in get_args(Device):
            raise ConfigError(f"device is {self.device!r}; there are {', '.join(get_args(Device))}")
        if self.sync and self.learners > 1:
            raise ConfigError("a synchronous run takes turns in one process; it has one learner")
        if self.actors % self.learners:
            raise ConfigError(
                f"{self.actors} actors cannot be shared out evenly among {self.learners} learners; "
                "choose a multiple"
            )
        if self.environments % self.acting_threads:
            raise ConfigError(
                f"{self.environments} environments cannot be shared out evenly among "
                f"{self.acting_threads} acting threads; choose a multiple"
            )
        if len(self.cells) > self.environments // self.acting_threads:
            raise ConfigError(
                f"{len(self.cells)} combinations of executors and interarrival_s, but a thread has "
                f"{self.environments // self.acting_threads} environments; each needs at least one"
            )
        for name in ("minutes", "target_ratio"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} is {value}; expected more than 0")
        for name in ("decisions", "updates", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected 1 or more")
        if not 0 <= self.validate_every_s < float("inf"):
            raise ConfigError(f"validate_every_s is {self.validate_every_s}; expected 0 or more")
        for name in ("target_ratio", "patience"):
            if getattr(self, name) is not None and self.validate_every_s == 0:
                raise ConfigError(f"{name} needs validations; validate_every_s is 0, so never")
        if self.sync and self.decisions is None and self.updates is None:
            raise ConfigError(
                "a synchronous run needs a limit of decisions or updates: its schedules follow "
                "these, not the clock"
            )
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; expected 0 or more")

    @property
    def acting_threads(self) -> int:
        """Of all actors together; each has a share of the environments."""
        return self.actors * self.threads_per_actor

    def places(self, rank: int) -> range:
        """The actors that act for a learner."""
        share = self.actors // self.learners
        return range(rank * share, (rank + 1) * share)

    @property
    def time_limit_s(self) -> float:
        """Wall time to train; infinite where only decisions or updates limit the run."""
        if self.minutes is not None:
            return self.minutes * 60
        limited = self.decisions is not None or self.updates is not None
        return float("inf") if limited else DEFAULT_MINUTES * 60

    @property
    def cells(self) -> tuple[tuple[int, float | None], ...]:
        """Every combination of executors and mean seconds between arrivals."""
        sizes = self.executors if isinstance(self.executors, tuple) else (self.executors,)
        given = self.interarrival_s
        gaps = given if isinstance(given, tuple) else (given,)
        return tuple((executors, gap) for executors in sizes for gap in gaps)
