"""What a scheduler sees, and what it answers: plain values that any engine can give.

The simulator makes an Observation from its State; a driver of a real cluster makes one from what
the cluster reports. `state_of` goes the other way, so that compiled schedulers and policies decide
on either.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from ganger.simulator import engine
from ganger.simulator.state import State, new_state
from ganger.simulator.table import TEMPLATE_STAGE, Table, empty_table, to_records


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


class Decision(msgspec.Struct, frozen=True):
    """Give executors on offer to a stage, until its job has `limit` of them."""

    job: str
    stage: str
    limit: int


class Names(NamedTuple):
    """The user's names of what a State holds by index."""

    jobs: list[str]
    stages: list[tuple[str, ...]]  # of each job, in topological order
    parents: list[tuple[tuple[str, ...], ...]]


def observe(state: State, table: Table, names: Names) -> Observation:
    """The observation of a state that waits for a decision."""
    clock = state.clock[0]
    jobs = []
    for j in state.active[: clock["active"]].tolist():
        job = state.jobs[j]
        first, last = int(job["first_stage"]), int(job["first_stage"] + job["stages"])
        stages = []
        for k, s in enumerate(range(first, last)):
            stage = state.stages[s]
            given = table.stages[stage["template"]]
            limit_s = float(given["limit_s"])
            runs = stage["gang"] and stage["finished"] < stage["launched"]
            stages.append(
                StageObservation(
                    id=names.stages[j][k],
                    parents=names.parents[j][k],
                    tasks=int(stage["tasks"]),
                    launched=int(stage["launched"]),
                    finished=int(stage["finished"]),
                    committed=int(stage["committed"]),
                    moving=int(stage["moving"]),
                    executors=int(stage["executors"]),
                    estimated_task_s=float(stage["estimate_s"]),
                    schedulable=bool(engine.is_schedulable(state, s)),
                    gang=bool(stage["gang"]),
                    limit_s=None if math.isnan(limit_s) else limit_s,
                    started_s=float(state.executors[stage["lead"]]["started_s"]) if runs else None,
                    cores=float(given["cores"]),
                    memory=float(given["memory"]),
                )
            )
        jobs.append(
            JobObservation(
                id=names.jobs[j],
                arrival_s=float(job["arrival_s"]),
                executors=int(job["executors"]),
                supply=int(job["supply"]),
                stages=tuple(stages),
            )
        )
    source_job = int(clock["source_job"])
    source_stage = None
    if source_job >= 0:
        source = engine.source_of_executor(state, int(state.hand[clock["in_hand"] - 1]))
        if source < clock["stages"]:
            first = int(state.jobs[source_job]["first_stage"])
            source_stage = names.stages[source_job][source - first]
    return Observation(
        version=int(clock["decisions"]),
        time_s=float(clock["now"]),
        executors=int(clock["executors"]),
        on_offer=int(clock["on_offer"]),
        source_job=names.jobs[source_job] if source_job >= 0 else None,
        idle=int(clock["idle"]),
        jobs=tuple(jobs),
        source_stage=source_stage,
        executor_class=int(clock["offered_kind"]),
    )


def state_of(observation: Observation) -> tuple[State, Table]:
    """A state that compiled schedulers can decide on, and its table; it cannot be advanced.

    Job j and its k-th stage in the state are the j-th and k-th of the observation.
    """
    jobs = observation.jobs
    state = new_state(len(jobs), sum(len(job.stages) for job in jobs), observation.executors)
    clock = state.clock[0]
    clock["now"] = observation.time_s
    clock["executors"] = observation.executors
    clock["decisions"] = observation.version
    clock["jobs"] = clock["arrived"] = clock["active"] = len(jobs)
    clock["stages"] = len(state.stages)
    clock["on_offer"] = observation.on_offer
    clock["idle"] = observation.idle
    clock["source_job"] = -1
    clock["scheduling_round"] = 1
    clock["gang_round"] = observation.source_job is None
    state.active[:] = np.arange(len(jobs))
    children_of_all: list[int] = []
    template_stages = []
    source_stage = -1
    lead = 0
    s = 0
    for j, seen in enumerate(jobs):
        is_source = seen.id == observation.source_job
        if is_source:
            clock["source_job"] = j
        job = state.jobs[j]
        job["arrival_s"] = seen.arrival_s
        job["first_stage"] = s
        job["stages"] = len(seen.stages)
        job["executors"] = seen.executors
        job["supply"] = seen.supply
        place = {stage.id: k for k, stage in enumerate(seen.stages)}
        children: list[list[int]] = [[] for _ in seen.stages]
        saturated = [stage.demand <= 0 for stage in seen.stages]
        for k, stage in enumerate(seen.stages):
            record = state.stages[s + k]
            record["job"] = j
            record["template"] = s + k
            record["estimate_s"] = stage.estimated_task_s
            record["tasks"] = stage.tasks
            record["launched"] = stage.launched
            record["finished"] = stage.finished
            record["committed"] = stage.committed
            record["moving"] = stage.moving
            record["executors"] = stage.executors
            record["saturated"] = saturated[k]
            record["gang"] = stage.gang
            record["lead"] = -1
            if stage.started_s is not None:  # its first executor tells; executor 0 is taken below
                lead += 1
                record["lead"] = lead
                state.executors[lead]["started_s"] = stage.started_s
            if is_source and stage.id == observation.source_stage:
                source_stage = s + k
            parents = [place[parent] for parent in stage.parents if parent in place]
            for parent in parents:
                children[parent].append(k)
            record["unsaturated_parents"] = sum(not saturated[parent] for parent in parents)
            record["unfinished_parents"] = sum(
                seen.stages[parent].finished < seen.stages[parent].tasks for parent in parents
            )
            if stage.gang and not saturated[k] and record["unfinished_parents"] == 0:
                clock["waiting"] += 1
            could = not saturated[k] and record["unsaturated_parents"] == 0
            job["schedulable"] += could
            clock["schedulable"] += could
            if could and not stage.schedulable:
                record["chosen"] = clock["scheduling_round"]
            job["unsaturated"] += not saturated[k]
            job["finished_stages"] += stage.finished == stage.tasks
            job["exhausted_stages"] += stage.launched == stage.tasks
        for k, stage in enumerate(seen.stages):
            template_stages.append(
                (
                    stage.estimated_task_s,
                    stage.tasks,
                    len(stage.parents),
                    len(children_of_all),
                    len(children[k]),
                    *(0, 0, 0, 0, 0, k),  # durations are unknown here
                    stage.gang,
                    math.nan if stage.limit_s is None else stage.limit_s,
                    stage.cores,
                    stage.memory,
                )
            )
            children_of_all.extend(children[k])
        s += len(seen.stages)
    if observation.executors:  # one executor stands for all that are on offer
        executor = state.executors[0]
        executor["stage"] = source_stage
        executor["job"] = clock["source_job"]
        clock["in_hand"] = 1
    table = empty_table().replace(
        stages=to_records(template_stages, TEMPLATE_STAGE),
        children=np.array(children_of_all or [0], np.int32),
    )
    return state, table
