"""An actor: a thread that only acts, in simulated clusters of its own, with the newest policy."""

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger import streams
from ganger.compiled import records
from ganger.errors import CheckpointError, GangerError
from ganger.policy.features import Rows, new_rows
from ganger.policy.forward import Scratch, new_scratch, weights_of
from ganger.policy.layout import limit_levels
from ganger.schedulers import parse_scheduler
from ganger.simulator import engine
from ganger.simulator.objectives import MAKESPAN, OBJECTIVES, TAIL
from ganger.simulator.state import State, new_state
from ganger.simulator.table import Table
from ganger.training.acting import (
    ENVIRONMENT,
    Environments,
    act,
    episode_job_list,
    grown,
    new_decisions,
)
from ganger.training.config import TrainConfig
from ganger.training.exchange import (
    Header,
    Parameters,
    ParameterSource,
    Trajectory,
    TrajectorySink,
)
from ganger.training.samples import ActorTrajectory
from ganger.workload.sources import INTERARRIVAL_S


class EpisodeOutcome(NamedTuple):
    """A finished episode beside what fair sharing does with the same jobs and durations."""

    jobs: int
    mean_jct_s: float
    fair_mean_jct_s: float
    ratio: float
    """Of the objective's own figure to fair's: see `own_figure`."""


class ActedTrajectory(NamedTuple):
    """What an actor hands over."""

    samples: ActorTrajectory
    outcomes: list[EpisodeOutcome]
    seconds: float  # of acting, waiting excluded


class Actor:
    """Environments of one actor, and the compiled loop that acts in them."""

    def __init__(self, config: TrainConfig, table: Table, index: int, generation: int = 0) -> None:
        self.index = index
        self.generation = generation
        self._config = config
        self.table = table
        count = config.environments // config.acting_threads
        self._largest = int(table.templates["stages"].max())
        stages = config.jobs * self._largest
        self._cells = np.arange(count) % len(config.cells)
        executors = np.array([config.cells[cell][0] for cell in self._cells], np.int32)
        self._states = [new_state(config.jobs, stages, int(size)) for size in executors]
        environments = records(count, ENVIRONMENT)
        for i, state in enumerate(self._states):
            environments[i]["state"] = state.address
            stream = (generation * config.acting_threads + index) * count + i
            environments[i]["key"] = streams.key(config.seed, streams.Stream.ACTOR, stream)
            # First episodes of all lengths, so that not all environments are young at once.
            environments[i]["next_jobs"] = max(1, config.jobs * (i + 1) // count)
        gaps_s = [_mean_gap_s(gap_s, table) for _, gap_s in config.cells]
        environments["mean_interarrival_s"] = [gaps_s[cell] for cell in self._cells]
        environments["move_delay_s"] = config.move_delay_s
        environments["reconsider"] = config.reconsider
        environments["conserving"] = config.work_conserving
        environments["jobs"] = config.jobs
        environments["executors"] = executors
        environments["objective"] = OBJECTIVES[config.objective]
        self._environments = Environments(
            environments=environments,
            levels=np.stack([limit_levels(int(size)) for size in executors]),
            templates=np.zeros(config.jobs, np.int32),
            arrivals_s=np.zeros(config.jobs),
        )
        self._scratch: Scratch = new_scratch(config.jobs, stages, self._largest)
        self._fair_state = new_state(config.jobs, stages, int(executors.max()))
        self._fair = parse_scheduler("fair")
        self._room = (4096, 4096, 4096 if config.messages else 1)

    def act(self, parameters: Parameters) -> ActedTrajectory:
        """Make the configured number of decisions in every environment."""
        config, table = self._config, self.table
        begin = time.perf_counter()
        weights = weights_of(parameters.vector, config.messages)
        count = len(self._states)
        rows: Rows = new_rows(count * (config.steps + 1), *self._room)
        decisions = new_decisions(count, config.steps)
        while not act(
            self._environments,
            table,
            weights,
            self._scratch,
            rows,
            decisions,
            config.steps,
            config.messages,
        ):
            rows = grown(rows)
        used = (rows.stage_pointer[-1], rows.job_pointer[-1], rows.edge_pointer[-1])
        self._room = tuple(int(n * 1.2) + 4096 for n in used)  # type: ignore[assignment]
        outcomes = self._outcomes(decisions.episodes[: decisions.cursor[2]])
        samples = ActorTrajectory(
            rows, decisions, self._environments.levels, self._cells, config.steps
        )
        return ActedTrajectory(samples, outcomes, time.perf_counter() - begin)

    def state(self) -> dict[str, NDArray[np.uint8]]:
        """Its clusters in the middle of their episodes, as bytes by name."""
        environments = _bytes_of(self._environments.environments).copy()  # with their padding
        environments.view(ENVIRONMENT)["state"] = 0  # an address in this process
        found = {"environments": environments}
        for name in State.FIELDS:
            found[name] = np.concatenate([_bytes_of(getattr(s, name)) for s in self._states])
        return found

    def restore(self, state: Mapping[str, NDArray[np.uint8]]) -> None:
        """Go on from what `state` of an actor with the same settings gave, to the bit.

        Raises:
            CheckpointError: if something is missing or of another size.
        """
        for name, own in self.state().items():
            if name not in state or state[name].shape != own.shape:
                raise CheckpointError(
                    f"the clusters of actor {self.index} are not those of these settings: "
                    f"{name} should have {own.size} bytes"
                )
        environments = self._environments.environments
        _bytes_of(environments)[:] = state["environments"]
        environments["state"] = [s.address for s in self._states]
        for name in State.FIELDS:
            start = 0
            for one in self._states:
                own = _bytes_of(getattr(one, name))
                own[:] = state[name][start : start + own.size]
                start += own.size

    def _outcomes(self, finished: np.ndarray) -> list[EpisodeOutcome]:
        """Replay one finished episode under fair: enough to follow the progress, and cheap."""
        whole = finished[finished["jobs"] == self._config.jobs][:1]
        outcomes = []
        for episode in whole:
            jobs = int(episode["jobs"])
            templates = np.zeros(jobs, np.int32)
            arrivals_s = np.zeros(jobs)
            key = np.uint64(episode["key"])
            environment = self._environments.environments[int(episode["environment"])]
            episode_job_list(key, environment, self.table, templates, arrivals_s, jobs)
            engine.load(
                self._fair_state,
                self.table,
                templates,
                arrivals_s,
                int(environment["executors"]),
                self._config.move_delay_s,
                np.uint64(streams.derive(key, 1)),  # compiled code returns a Python int
            )
            for rule in ("reconsider", "conserving"):
                self._fair_state.clock[0][rule] = environment[rule]
            self._fair.run(self._fair_state, self.table, key)
            fair_s = engine.job_seconds(self._fair_state) / jobs
            objective = int(environment["objective"])
            own = own_figure(episode["cost"], jobs, objective)
            fair = own_figure(engine.cost(self._fair_state, objective), jobs, objective)
            ratio = own / fair if fair > 0 else 1.0
            outcomes.append(EpisodeOutcome(jobs, episode["job_seconds"] / jobs, fair_s, ratio))
        return outcomes


def _mean_gap_s(given_s: float | None, table: Table) -> float:
    """Mean seconds between two arrivals."""
    if given_s is not None:
        return given_s
    log_s = table.log_arrivals_s
    return float((log_s[-1] - log_s[0]) / len(log_s)) if len(log_s) else INTERARRIVAL_S


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The array's own memory."""
    return np.frombuffer(array, np.uint8) if array.size else np.empty(0, np.uint8)


def own_figure(cost: float, jobs: int, objective: int) -> float:
    """What an episode's cost says per job, for ratios: a mean, a root mean square, the makespan."""
    if objective == MAKESPAN:
        return cost
    per_job = cost / jobs
    return math.sqrt(per_job) if objective == TAIL else per_job


def run_actor(actor: Actor, source: ParameterSource, sink: TrajectorySink) -> None:
    """Act until the run is over. What kills the actor reaches the learner."""
    sequence = 0
    try:
        while sink.wait_for_room(actor.index):
            parameters = source.newest()
            acted = actor.act(parameters)
            header = Header(actor.index, actor.generation, sequence, parameters.version)
            if not sink.put(Trajectory(header, acted)):
                return
            sequence += 1
    except (Exception, GangerError) as error:
        sink.fail(actor.index, error)
