"""Run a workload on a simulated cluster under a scheduler."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ganger import streams
from ganger.errors import SimulationError
from ganger.simulator import engine
from ganger.simulator.cluster import Cluster as Cluster
from ganger.simulator.observation import Decision, Observation
from ganger.simulator.observing import Names, observe
from ganger.simulator.state import State, new_state
from ganger.simulator.table import Table, TableBuilder
from ganger.workload.model import Stage, Workload, topological_order
from ganger.workload.verdicts import never_fit, refuse_misfits, without_misfits

_ANY_LIMIT = 2**31 - 1  # a larger limit says no more than this


class Scheduler(Protocol):
    """Anything that decides. The smallest one is ten lines of Python; see docs/schedulers.md."""

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage to serve; None leaves the executors on offer where they are."""
        ...


@runtime_checkable
class CompiledScheduler(Protocol):
    """A scheduler that also runs inside the engine, without Python between two decisions."""

    def run(self, state: State, table: Table, key: np.uint64) -> None:
        """Drive a loaded state until no event is left; `key` is its random stream."""
        ...


class Episode(NamedTuple):
    """Jobs as the engine takes them."""

    table: Table
    templates: NDArray[np.int32]  # of each job, by arrival
    arrivals_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to every job. Times are seconds; NaN where a job never started or ended."""

    arrival_s: NDArray[np.float64]
    first_start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    executors: int
    events: int
    decisions: int
    busy_s: float
    """Executor-seconds of all finished tasks."""
    end_s: float
    """When the last event happened."""
    timeline: NDArray[Any] | None = None
    """One record per task (state.TASK), if asked for."""
    killed: int = 0
    """Jobs with a gang that was stopped at its limit; they count as finished."""
    rejected: int = 0
    """Jobs left out because they can never fit; they are in no array."""

    @property
    def submitted(self) -> int:
        return len(self.arrival_s) + self.rejected

    @property
    def finished(self) -> int:
        return int(np.isfinite(self.finish_s).sum())

    @property
    def unfinished(self) -> int:
        return len(self.arrival_s) - self.finished

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """Job completion time of each job: finish - arrival."""
        return self.finish_s - self.arrival_s

    @property
    def mean_jct_s(self) -> float:
        return float(self.jct_s.mean())

    def jct_percentile_s(self, percent: float) -> float:
        return float(np.percentile(self.jct_s, percent))

    @property
    def makespan_s(self) -> float:
        """Last finish - first arrival."""
        return float(self.finish_s.max() - self.arrival_s[0])

    @property
    def utilisation(self) -> float:
        """Busy share of all executors from the first arrival to the last finish."""
        return self.busy_s / (self.executors * self.makespan_s) if self.makespan_s > 0 else 0.0

    def summary(self) -> dict[str, float | int]:
        """The figures people compare, ready for JSON."""
        return {
            "mean_jct_s": self.mean_jct_s,
            "p50_jct_s": self.jct_percentile_s(50),
            "p95_jct_s": self.jct_percentile_s(95),
            "p99_jct_s": self.jct_percentile_s(99),
            "makespan_s": self.makespan_s,
            "utilisation": self.utilisation,
            "horizon_s": self.makespan_s,
            "submitted": self.submitted,
            "finished": self.finished,
            "unfinished": self.unfinished,
            "rejected": self.rejected,
            "killed": self.killed,
            "events": self.events,
            "decisions": self.decisions,
        }


def prepare(workload: Workload) -> Episode:
    """Flatten a workload for the engine. The workload itself is never changed."""
    builder = TableBuilder()
    templates = np.array([builder.add(job.stages) for job in workload.jobs], np.int32)
    arrivals_s = np.array([job.arrival_s for job in workload.jobs], np.float64)
    return Episode(builder.build(), templates, arrivals_s)


def simulate(
    cluster: Cluster,
    workload: Workload,
    scheduler: Scheduler | CompiledScheduler,
    *,
    seed: int = 0,
    timeline: bool = False,
    kill_at_limit: bool = False,
    reject_unfit: bool = False,
) -> Result:
    """Run the workload to its end.

    Args:
        cluster: the executors.
        workload: the jobs.
        scheduler: compiled or plain Python.
        seed: of task durations (and of a scheduler that draws). The same seed gives a task the
            same luck under any scheduler.
        timeline: record which executor ran which task when.
        kill_at_limit: stop a gang when it has run as long as was asked for (`Stage.limit_s`); what
            comes after it in its job goes on.
        reject_unfit: leave out jobs that can never run on this cluster and count them, instead of
            refusing the workload.

    Raises:
        WorkloadError: a job can never run on this cluster.
        SimulationError: there are no jobs, a decision was impossible, or the scheduler left jobs
            unfinished.
    """
    if not workload.jobs:
        raise SimulationError("the workload has no jobs; there is nothing to simulate")
    submitted = len(workload.jobs)
    if reject_unfit:
        workload = Workload(without_misfits(workload.jobs, cluster.executors, cluster.classes))
    else:
        named = ((job.id, job.stages) for job in workload.jobs)
        refuse_misfits(never_fit(named, cluster.executors, cluster.classes))
    episode = prepare(workload)
    state = load_episode(
        episode, cluster, seed=seed, timeline=timeline, kill_at_limit=kill_at_limit
    )
    if isinstance(scheduler, CompiledScheduler):
        run_compiled(state, episode.table, scheduler, seed)
    else:
        _run_python(state, episode.table, scheduler, _names(workload))
    result = replace(result_of(state), rejected=submitted - len(workload.jobs))
    if result.unfinished:
        left = workload.jobs[int(np.flatnonzero(np.isnan(result.finish_s))[0])]
        raise SimulationError(
            f"{type(scheduler).__name__} left {result.unfinished} of {len(result.finish_s)} jobs "
            f"unfinished, the first is {left.id!r}: it declined while nothing was running; "
            "it must serve a schedulable stage sooner or later"
        )
    return result


def load_episode(
    episode: Episode,
    cluster: Cluster,
    *,
    seed: int,
    timeline: bool = False,
    kill_at_limit: bool = False,
) -> State:
    """A state with the episode loaded, at time 0."""
    rows = episode.table.templates[episode.templates]
    state = new_state(
        len(episode.templates),
        int(rows["stages"].sum()),
        cluster.executors,
        int(rows["tasks"].sum()) if timeline else 0,
    )
    engine.load(
        state,
        episode.table,
        episode.templates,
        episode.arrivals_s,
        cluster.executors,
        cluster.move_delay_s,
        streams.key(seed, streams.Stream.DURATIONS),
    )
    state.clock[0]["kill_at_limit"] = kill_at_limit
    cluster.prepare(state, episode.table)
    return state


def run_compiled(state: State, table: Table, scheduler: CompiledScheduler, seed: int) -> None:
    """Drive a loaded state to its end under a compiled scheduler."""
    scheduler.run(state, table, streams.key(seed, streams.Stream.SCHEDULER))


def _run_python(state: State, table: Table, scheduler: Scheduler, names: Names) -> None:
    job_index = {job: j for j, job in enumerate(names.jobs)}
    while engine.advance(state, table):
        decision = scheduler.decide(observe(state, table, names))
        if decision is None:
            engine.decline(state, table)
        else:
            s = _check(state, names, job_index, decision)
            engine.decide(state, table, s, min(int(decision.limit), _ANY_LIMIT))


def _check(state: State, names: Names, job_index: dict[str, int], decision: Decision) -> int:
    """The index of the stage that a decision names; a SimulationError says what is wrong."""
    what = f"decision for stage {decision.stage!r} of job {decision.job!r}"
    j = job_index.get(decision.job, -1)
    if j < 0 or j not in state.active[: state.clock[0]["active"]]:
        known = [names.jobs[i] for i in state.active[: state.clock[0]["active"]]]
        raise SimulationError(f"{what}: no such job in the system; there are {known}")
    if decision.stage not in names.stages[j]:
        raise SimulationError(f"{what}: no such stage; the job has {list(names.stages[j])}")
    s = int(state.jobs[j]["first_stage"]) + names.stages[j].index(decision.stage)
    if not engine.is_schedulable(state, s):
        stage = state.stages[s]
        if stage["unsaturated_parents"]:
            why = "a parent still needs executors"
        elif not engine.serves(state, state.clock[0]["offered_kind"], s):
            why = "the executors on offer are of a class that does not meet its demand"
        elif stage["gang"] and not stage["saturated"]:
            why = (
                f"a gang of {stage['tasks']}: its parents must be done, and as many executors of "
                "the common pool be on offer"
            )
        elif stage["saturated"]:
            why = "it already has an executor for every task"
        else:
            why = "it was chosen before in this scheduling round"
        raise SimulationError(f"{what}: the stage is not schedulable, {why}")
    whole = isinstance(decision.limit, int | np.integer)
    if not whole or decision.limit < 1:
        raise SimulationError(
            f"{what}: limit is {decision.limit!r}; expected a whole number from 1"
        )
    return s


def _names(workload: Workload) -> Names:
    of_stages: dict[int, tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]] = {}

    def named(stages: tuple[Stage, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        if id(stages) not in of_stages:
            ordered = [stages[position] for position in topological_order(stages)]
            of_stages[id(stages)] = (
                tuple(stage.id for stage in ordered),
                tuple(stage.parents for stage in ordered),
            )
        return of_stages[id(stages)]

    pairs = [named(job.stages) for job in workload.jobs]
    return Names([job.id for job in workload.jobs], [p[0] for p in pairs], [p[1] for p in pairs])


def result_of(state: State) -> Result:
    """The result of a state that has no event left."""
    clock = state.clock[0]
    jobs = state.jobs[: clock["jobs"]]
    return Result(
        arrival_s=np.array(jobs["arrival_s"]),
        first_start_s=np.array(jobs["first_start_s"]),
        finish_s=np.array(jobs["finish_s"]),
        executors=int(clock["executors"]),
        events=int(clock["events"]),
        decisions=int(clock["decisions"]),
        busy_s=float(clock["busy_s"]),
        end_s=float(clock["now"]),
        timeline=np.array(state.timeline[: clock["tasks_logged"]]) if len(state.timeline) else None,
        killed=int(jobs["killed"].sum()),
    )
