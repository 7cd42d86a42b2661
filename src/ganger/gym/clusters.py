"""The clusters behind both environments: their settings, spaces, memory and random streams."""

from functools import lru_cache
from typing import Any, NamedTuple, get_args

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray

from ganger import streams
from ganger.compiled import records
from ganger.errors import ConfigError, SimulationError
from ganger.gym import stepping
from ganger.policy.features import JOB_WIDTH, POLICY_GLOBALS, STAGE_WIDTH, new_rows
from ganger.policy.layout import LEVEL_WIDTH, LEVELS, limit_levels
from ganger.simulator import engine
from ganger.simulator.simulate import Cluster, CompiledScheduler
from ganger.simulator.state import new_state
from ganger.simulator.table import Table, TableBuilder
from ganger.workload.sources import Split, load_source

Observation = dict[str, NDArray[Any]]


class Setting(NamedTuple):
    """What the episodes are like, and how much of a cluster is shown."""

    workload: str = "synthetic"
    """What jobs are drawn from: synthetic, tpch:DIR or a .jobs.jsonl file."""
    executors: int = 10
    jobs: int = 20
    """Jobs in an episode."""
    interarrival_s: float = 100.0
    """Mean seconds between two arrivals; 0: all jobs at once."""
    move_delay_s: float = 2.0
    """Seconds an executor needs to change jobs."""
    max_stages: int = 64
    """Rows of stages: also how many an action can tell apart."""
    max_jobs: int = 20
    """Rows of jobs."""
    split: Split = "train"
    """Which of the workload's jobs."""

    def check(self) -> None:
        """Refuse what no cluster can be made of.

        Raises:
            ConfigError: naming the setting.
            SimulationError: the cluster is impossible.
        """
        for name in ("executors", "jobs", "max_stages", "max_jobs"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number from 1")
        if not 0 <= self.interarrival_s < float("inf"):
            raise ConfigError(f"interarrival_s is {self.interarrival_s}; expected 0 or more")
        if self.split not in get_args(Split):
            raise ConfigError(
                f"split is {self.split!r}; expected one of {', '.join(get_args(Split))}"
            )
        Cluster(executors=self.executors, move_delay_s=self.move_delay_s)


class Templates(NamedTuple):
    """The jobs that episodes draw from."""

    table: Table
    numbering: NDArray[np.int32]  # place in the table of each of the source's templates
    stages: int  # of the largest job
    edges: int  # of the job with the most
    parents: int  # of the stage with the most
    children: int  # likewise


@lru_cache(maxsize=8)
def load_templates(workload: str, split: Split) -> Templates:
    """Load a workload; once per process, however many environments use it."""
    builder = TableBuilder()
    distinct = load_source(workload).templates(split)
    numbering = np.array([builder.add(stages) for stages in distinct], np.int32)
    table = builder.build()
    of_jobs = np.add.reduceat(table.stages["children"], table.templates["first_stage"])
    return Templates(
        table,
        numbering,
        stages=int(table.templates["stages"].max()),
        edges=int(of_jobs.max()),
        parents=int(table.stages["parents"].max()),
        children=int(table.stages["children"].max()),
    )


class ClusterGroup:
    """Any number of simulated clusters with one setting; see docs/gym.md for what they show."""

    def __init__(self, count: int, setting: Setting) -> None:
        setting.check()
        self.setting, self.count = setting, count
        self._source = source = load_templates(setting.workload, setting.split)
        self.limits = limit_levels(setting.executors)
        of_limits = int((self.limits > 0).sum())
        stages, jobs = setting.max_stages, setting.max_jobs
        edges = max(
            1,
            min(
                stages * min(source.children, source.parents),
                min(jobs, setting.jobs) * source.edges,
            ),
        )
        self.observation_space = spaces.Dict(
            {
                "stages": _features(stages, STAGE_WIDTH),
                "jobs": _features(jobs, JOB_WIDTH),
                "globals": _features(POLICY_GLOBALS),
                # Gymnasium warns of a space with a single value.
                "stage_job": spaces.Box(0, max(jobs - 1, 1), (stages,), np.int32),
                "edges": spaces.Box(0, max(stages - 1, 1), (edges, 2), np.int32),
                "counts": spaces.Box(
                    np.zeros(3, np.int32), np.array([stages, jobs, edges], np.int32), dtype=np.int32
                ),
                "action_mask": spaces.Box(0, 1, (stages * of_limits,), np.int8),
            }
        )
        self.action_space = spaces.Discrete(stages * of_limits)

        in_episode = setting.jobs * source.stages
        self._states = [
            new_state(setting.jobs, in_episode, setting.executors) for _ in range(count)
        ]
        clusters = records(count, stepping.CLUSTER)
        clusters["state"] = [state.address for state in self._states]
        clusters["mean_interarrival_s"] = setting.interarrival_s
        clusters["move_delay_s"] = setting.move_delay_s
        clusters["executors"] = setting.executors
        self._clusters = stepping.Clusters(
            clusters=clusters,
            numbering=source.numbering,
            limits=self.limits,
            stages=np.zeros((count * stages, STAGE_WIDTH), np.float32),
            jobs=np.zeros((count * jobs, JOB_WIDTH), np.float32),
            globals=np.zeros((count, POLICY_GLOBALS), np.float32),
            stage_job=np.zeros((count, stages), np.int32),
            edges=np.zeros((count * edges, 2), np.int32),
            counts=np.zeros((count, 3), np.int32),
            mask=np.zeros((count, stages * of_limits), np.int8),
            stage_index=np.zeros((count, stages), np.int32),
            hidden=np.zeros((count, 3), np.int32),
            reward=np.zeros(count),
            done=np.zeros(count, np.uint8),
            replaced=np.zeros(count, np.uint8),
            time_s=np.zeros(count),
            mean_jct_s=np.zeros(count),
            templates=np.zeros(setting.jobs, np.int32),
            arrivals_s=np.zeros(setting.jobs),
            path=np.zeros(source.stages),
            work_path=np.zeros(source.stages),
            level=np.zeros(LEVEL_WIDTH, np.float32),
            job_place=np.zeros(setting.jobs, np.int32),
            stage_place=np.zeros(in_episode, np.int32),
        )
        assert len(self.limits) == LEVELS
        self._rows = new_rows(1, in_episode, setting.jobs, max(1, setting.jobs * source.edges))

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Let cluster i begin an episode of its stream at the next step."""
        cluster = self._clusters.clusters[i]
        cluster["key"] = rng.integers(2**64, dtype=np.uint64)
        cluster["begin"] = 1

    def step(self, actions: NDArray[np.int64]) -> None:
        """Take an action in every cluster, or begin the episode that is due there.

        Args:
            actions: [clusters].

        Raises:
            SimulationError: an action that is no action.
        """
        if actions.shape != (self.count,) or not np.issubdtype(actions.dtype, np.integer):
            raise SimulationError(
                f"actions are {actions.dtype} of shape {actions.shape}; expected one whole number "
                f"for each of {self.count} clusters"
            )
        if ((actions < 0) | (actions >= self.action_space.n)).any():
            wrong = actions[(actions < 0) | (actions >= self.action_space.n)][0]
            raise SimulationError(f"action is {wrong}; expected 0 to {self.action_space.n - 1}")
        stepping.step(
            self._clusters, self._source.table, self._rows, actions.astype(np.int64, copy=False)
        )

    def observation(self) -> Observation:
        """What was last observed, [clusters, ...] each; the caller's own copy."""
        c, count = self._clusters, self.count
        return {
            "action_mask": c.mask.copy(),
            "counts": c.counts.copy(),
            "edges": c.edges.reshape(count, -1, 2).copy(),
            "globals": c.globals.copy(),
            "jobs": c.jobs.reshape(count, -1, JOB_WIDTH).copy(),
            "stage_job": c.stage_job.copy(),
            "stages": c.stages.reshape(count, -1, STAGE_WIDTH).copy(),
        }

    def info(self) -> dict[str, NDArray[Any]]:
        """What else is known after a step, [clusters, ...] each."""
        c = self._clusters
        return {
            "action_mask": c.mask.copy(),
            "masked_action": c.replaced.astype(bool),
            "time_s": c.time_s.copy(),
            "hidden_stages": c.hidden[:, stepping.HIDDEN_STAGES].copy(),
            "hidden_jobs": c.hidden[:, stepping.HIDDEN_JOBS].copy(),
            "not_offered": c.hidden[:, stepping.NOT_OFFERED].copy(),
        }

    @property
    def reward(self) -> NDArray[np.float64]:
        """Minus job-seconds since the decision before / jobs of an episode, [clusters]."""
        return np.array(self._clusters.reward)

    @property
    def done(self) -> NDArray[np.bool_]:
        """Where the episode has ended, [clusters]."""
        return np.array(self._clusters.done, bool)

    @property
    def mean_jct_s(self) -> NDArray[np.float64]:
        """Mean job completion time of the episode that has ended, [clusters]."""
        return np.array(self._clusters.mean_jct_s)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which actions are legal, [clusters, actions]."""
        return np.array(self._clusters.mask, bool)

    def mean_jct_under(self, scheduler: CompiledScheduler, i: int) -> float:
        """Mean job completion time of cluster i's episode, from its start, under a scheduler.

        Raises:
            SimulationError: the scheduler left jobs unfinished.
        """
        table, jobs = self._source.table, self.setting.jobs
        state = new_state(jobs, jobs * self._source.stages, self.setting.executors)
        stepping.load_episode(self._clusters, i, state, table)
        scheduler.run(state, table, streams.key(0, streams.Stream.SCHEDULER))
        if state.clock[0]["finished"] < jobs:
            raise SimulationError(f"{scheduler} left jobs unfinished")
        return float(engine.job_seconds(state)) / jobs

    def line(self, i: int) -> str:
        """Cluster i in one line."""
        clock = self._states[i].clock[0]
        return (
            f"{clock['now']:.1f} s: {clock['active']} jobs in the system, "
            f"{clock['finished']} of {clock['jobs']} finished, "
            f"{clock['on_offer']} of {clock['executors']} executors on offer"
        )


def new_rng(seed: int | None) -> tuple[np.random.Generator, int]:
    """Gymnasium's generator for a seed, and the seed."""
    return seeding.np_random(seed)


def _features(*shape: int) -> spaces.Box:
    limit = float(stepping.FEATURE_LIMIT)
    return spaces.Box(-limit, limit, shape, np.float32)
