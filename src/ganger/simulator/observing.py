"""From a State to an Observation and back, so that compiled schedulers decide on either."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import records
from ganger.simulator import engine
from ganger.simulator.observation import Decision, JobObservation, Observation, StageObservation
from ganger.simulator.state import State, new_state
from ganger.simulator.table import TEMPLATE_STAGE, Table, empty_table


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
        work_conserving=bool(clock["conserving"]),
    )


def state_of(observation: Observation) -> tuple[State, Table]:
    """A state that compiled schedulers can decide on, and its table; it cannot be advanced.

    Job j and its k-th stage in the state are the j-th and k-th of the observation.
    """
    seen_jobs = observation.jobs
    seen = [stage for job in seen_jobs for stage in job.stages]
    # One executor stands for all on offer, and one for each gang that runs.
    state = new_state(len(seen_jobs), len(seen), observation.executors + 1)
    clock, jobs, stages = state.clock[0], state.jobs, state.stages
    sizes = np.array([len(job.stages) for job in seen_jobs], np.int64)
    first_stage = np.cumsum(sizes) - sizes
    jobs["first_stage"], jobs["stages"] = first_stage, sizes
    for name in ("arrival_s", "executors", "supply"):
        jobs[name] = [getattr(job, name) for job in seen_jobs]
    of_job = np.repeat(np.arange(len(seen_jobs)), sizes)
    stages["job"] = of_job
    stages["template"] = np.arange(len(seen))
    stages["estimate_s"] = [stage.estimated_task_s for stage in seen]
    for name in ("tasks", "launched", "finished", "committed", "moving", "executors", "gang"):
        stages[name] = [getattr(stage, name) for stage in seen]
    stages["lead"] = -1
    wanted = stages["tasks"] - stages["launched"] - stages["committed"] - stages["moving"]
    saturated = wanted <= 0
    stages["saturated"] = saturated
    edges = _edges(seen_jobs)
    parents, children = edges[:, 0], edges[:, 1]
    unfinished = stages["finished"] < stages["tasks"]
    for name, counts in (("unsaturated_parents", ~saturated), ("unfinished_parents", unfinished)):
        stages[name] = np.bincount(children, counts[parents], len(seen))
    could = ~saturated & (stages["unsaturated_parents"] == 0)
    cannot = could & ~np.array([stage.schedulable for stage in seen], bool)
    stages["chosen"][cannot] = 1
    exhausted = stages["launched"] == stages["tasks"]
    for name, flags in (
        ("schedulable", could),
        ("unsaturated", ~saturated),
        ("finished_stages", ~unfinished),
        ("exhausted_stages", exhausted),
    ):
        jobs[name] = np.bincount(of_job, flags, len(seen_jobs))
    clock["now"] = observation.time_s
    clock["executors"] = observation.executors
    clock["decisions"] = observation.version
    clock["jobs"] = clock["arrived"] = clock["active"] = len(seen_jobs)
    clock["stages"] = len(seen)
    clock["on_offer"] = observation.on_offer
    clock["idle"] = observation.idle
    clock["scheduling_round"] = 1
    clock["conserving"] = observation.work_conserving
    clock["gang_round"] = observation.source_job is None
    clock["schedulable"] = could.sum()
    clock["waiting"] = (
        (stages["gang"] == 1) & ~saturated & (stages["unfinished_parents"] == 0)
    ).sum()
    state.active[:] = np.arange(len(seen_jobs))
    lead = 0
    for s, stage in enumerate(seen):
        if stage.started_s is not None:  # its first executor tells; executor 0 is taken below
            lead += 1
            stages[s]["lead"] = lead
            state.executors[lead]["started_s"] = stage.started_s
    source_job, source_stage = _source(observation)
    clock["source_job"] = source_job
    if observation.executors:  # one executor stands for all that are on offer
        executor = state.executors[0]
        executor["stage"] = -1 if source_stage < 0 else first_stage[source_job] + source_stage
        executor["job"] = source_job
        clock["in_hand"] = 1
    return state, _table_of(seen, edges, first_stage[of_job])


def _edges(jobs: tuple[JobObservation, ...]) -> NDArray[np.int64]:
    """Parent and child of every edge among the stages that are there, [edges, 2], by parent."""
    edges: list[tuple[int, int]] = []
    first = 0
    for job in jobs:
        place = {stage.id: first + k for k, stage in enumerate(job.stages)}
        for s, stage in enumerate(job.stages, first):
            edges.extend((place[parent], s) for parent in stage.parents if parent in place)
        first += len(job.stages)
    edges.sort()
    return np.array(edges, np.int64).reshape(-1, 2)


def _source(observation: Observation) -> tuple[int, int]:
    """The job whose executors are on offer, and which stage of it they have served; -1: none."""
    for j, job in enumerate(observation.jobs):
        if job.id == observation.source_job:
            for k, stage in enumerate(job.stages):
                if stage.id == observation.source_stage:
                    return j, k
            return j, -1
    return -1, -1


def _table_of(
    seen: list[StageObservation], edges: NDArray[np.int64], first_stage: NDArray[np.int64]
) -> Table:
    """The table of a state: a template for each stage; `first_stage` is that of its job."""
    templates = records(len(seen), TEMPLATE_STAGE)
    templates["estimate_s"] = [stage.estimated_task_s for stage in seen]
    templates["tasks"] = [stage.tasks for stage in seen]
    templates["parents"] = [len(stage.parents) for stage in seen]
    counts = np.bincount(edges[:, 0], minlength=len(seen))
    templates["children"] = counts
    templates["first_child"] = np.cumsum(counts) - counts
    templates["position"] = np.arange(len(seen)) - first_stage
    templates["gang"] = [stage.gang for stage in seen]
    templates["limit_s"] = [math.nan if s.limit_s is None else s.limit_s for s in seen]
    templates["cores"] = [stage.cores for stage in seen]
    templates["memory"] = [stage.memory for stage in seen]
    children = edges[:, 1] - first_stage[edges[:, 0]]
    return empty_table().replace(
        stages=templates,
        children=children.astype(np.int32) if len(edges) else np.zeros(1, np.int32),
    )


def decision_of(observation: Observation, state: State, s: int, limit: int) -> Decision:
    """The decision for stage `s` of the state that was made of an observation."""
    j = int(state.stages[s]["job"])
    job = observation.jobs[j]
    return Decision(job.id, job.stages[s - int(state.jobs[j]["first_stage"])].id, int(limit))
