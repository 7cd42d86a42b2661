"""The state of one simulated cluster: record arrays that compiled code updates in place.

Indices are positions in these arrays; -1 means none. A *source* is where executors on offer come
from: stage `s` is source `s`, the free pool of job `j` is source `len(stages) + j`, the common pool
is the last source. An executor's place is one of: running on a stage (or just finished there), in a
job's free pool, in the common pool, moving to a stage.
"""

from typing import Any, ClassVar

import numpy as np

from ganger.compiled import records
from ganger.structs import ArrayStruct

CLOCK = np.dtype(
    [
        ("now", "f8"),  # seconds
        ("job_seconds", "f8"),  # integral of the number of jobs in the system, up to changed_s
        ("weighted_s", "f8"),  # integral of their weight, likewise
        ("squares_s2", "f8"),  # integral of twice their age, likewise
        ("changed_s", "f8"),  # when that number last changed
        ("weight", "f8"),  # of the jobs in the system: sum
        ("arrivals_s", "f8"),  # of the jobs in the system: sum
        ("busy_s", "f8"),  # executor-seconds of finished tasks
        ("move_delay_s", "f8"),
        ("events", "i8"),
        ("decisions", "i8"),
        ("sequence", "i8"),  # events pushed so far; breaks ties of time
        ("heap_size", "i4"),
        ("jobs", "i4"),  # in this episode
        ("stages", "i4"),
        ("executors", "i4"),
        ("arrived", "i4"),  # jobs that have arrived: the next arrival's index
        ("active", "i4"),  # jobs in the system: state.active[:active]
        ("finished", "i4"),
        ("scheduling_round", "i4"),  # a stage is chosen at most once in each
        ("source_job", "i4"),  # the job whose executors are on offer, or -1
        ("on_offer", "i4"),  # executors the round has not committed yet
        ("in_hand", "i4"),  # of the round's executors, those free now: state.hand[:in_hand]
        ("idle", "i4"),  # executors in a pool
        ("free", "i4"),  # of these, in the common pool
        ("schedulable", "i4"),  # unsaturated stages whose parents are saturated
        ("free_commitment", "i4"),  # head of the list of unused commitment records
        ("waiting", "i4"),  # gangs that could start if they had their executors
        ("news", "i4"),  # 1: the common pool will be offered at the end of this instant
        ("gang_round", "i4"),  # 1: that round is open; gangs may be chosen
        ("kill_at_limit", "i4"),  # 1: a gang runs no longer than was asked for
        ("reconsider", "i4"),  # 1: executors are offered again after jobs arrived
        ("conserving", "i4"),  # 1: nobody waits for a stage that cannot start yet
        ("kinds", "i4"),  # executor classes; 0: all executors are alike
        ("offered_kind", "i4"),  # class of the executors on offer
        ("next_kind", "i4"),  # class to offer next of that source, or -1
        ("next_source", "i4"),
        ("tasks_logged", "i8"),
    ],
    align=True,
)
EVENT = np.dtype([("time", "f8"), ("sequence", "i8"), ("what", "i8")])
JOB = np.dtype(
    [
        ("arrival_s", "f8"),
        ("first_start_s", "f8"),  # NaN until a task starts
        ("finish_s", "f8"),  # NaN until the last task ends
        ("key", "u8"),  # random stream of its durations
        ("template", "i4"),
        ("first_stage", "i4"),  # its stages are state.stages[first_stage : first_stage + stages]
        ("stages", "i4"),
        ("finished_stages", "i4"),
        ("exhausted_stages", "i4"),  # all tasks launched
        ("unsaturated", "i4"),  # stages that could use more executors
        ("schedulable", "i4"),  # of these, the ones whose parents are all saturated
        ("executors", "i4"),  # bound to the job
        ("supply", "i4"),  # bound, moving to it, or committed to it from elsewhere
        ("row", "i4"),  # of the features last written
        ("killed", "i4"),  # 1: a gang of it was stopped at its limit
    ],
    align=True,
)
STAGE = np.dtype(
    [
        ("key", "u8"),
        ("estimate_s", "f8"),  # what a scheduler is told about one task's duration
        ("job", "i4"),
        ("template", "i4"),  # row of Table.stages
        ("tasks", "i4"),
        ("launched", "i4"),
        ("finished", "i4"),
        ("committed", "i4"),  # executors promised
        ("moving", "i4"),  # executors on their way
        ("executors", "i4"),  # running here, or just finished here
        ("unfinished_parents", "i4"),
        ("unsaturated_parents", "i4"),
        ("saturated", "i4"),
        ("chosen", "i4"),  # the last round that chose it
        ("gang", "i4"),  # 1: all its tasks start together
        ("lead", "i4"),  # of a gang that runs: the first of its executors, linked by `next`
        ("refuses", "i4"),  # bit k: executors of class k do not meet its demand
    ],
    align=True,
)
EXECUTOR = np.dtype(
    [
        ("started_s", "f8"),  # of the running task
        ("cores", "f8"),  # 0: not told, as without classes; inf: without limit
        ("memory", "f8"),
        ("job", "i4"),  # bound to
        ("stage", "i4"),  # of the running or last task; -1 after idling or moving
        ("task", "i4"),
        ("target", "i4"),  # stage it moves to
        ("pool", "i4"),  # source index of the pool it idles in
        ("next", "i4"),  # neighbours in that pool, or the next one of a gang that runs
        ("previous", "i4"),
        ("wave", "i4"),  # of the running or last task
        ("kind", "i4"),  # executor class
        ("asked", "i4"),  # jobs that had arrived when it was last decided about
    ],
    align=True,
)
SOURCE = np.dtype(
    [("pool", "i4"), ("first", "i4"), ("last", "i4")]  # first idle executor; commitments in order
)
COMMITMENT = np.dtype([("stage", "i4"), ("count", "i4"), ("next", "i4"), ("kind", "i4")])
TASK = np.dtype(  # one line of the timeline
    [
        ("start_s", "f8"),
        ("finish_s", "f8"),
        ("executor", "i4"),
        ("job", "i4"),  # rank by arrival
        ("stage", "i4"),  # position in the job
        ("task", "i4"),
    ],
    align=True,
)

TASK_DONE, EXECUTOR_ARRIVAL = 0, 1


class State(ArrayStruct):
    """One simulated cluster."""

    clock: Any  # [1]
    heap: Any  # [executors + 1], binary heap by (time, sequence)
    jobs: Any  # [jobs], by arrival
    stages: Any  # [stages], a job's stages in topological order
    executors: Any  # [executors]
    sources: Any  # [stages + jobs + 1]
    commitments: Any  # [executors + 1]
    active: Any  # [jobs]: jobs in the system, by arrival
    hand: Any  # [executors]
    timeline: Any  # [tasks, or 0 when not recorded]
    FIELDS: ClassVar = {
        "clock": (CLOCK, 1),
        "heap": (EVENT, 1),
        "jobs": (JOB, 1),
        "stages": (STAGE, 1),
        "executors": (EXECUTOR, 1),
        "sources": (SOURCE, 1),
        "commitments": (COMMITMENT, 1),
        "active": (np.int32, 1),
        "hand": (np.int32, 1),
        "timeline": (TASK, 1),
    }


def new_state(jobs: int, stages: int, executors: int, timeline: int = 0) -> State:
    """An empty state with room for that many jobs, stages and executors."""
    return State(
        clock=records(1, CLOCK),
        heap=records(executors + 1, EVENT),
        jobs=records(jobs, JOB),
        stages=records(stages, STAGE),
        executors=records(executors, EXECUTOR),
        sources=records(stages + jobs + 1, SOURCE),
        commitments=records(executors + 1, COMMITMENT),
        active=np.zeros(jobs, np.int32),
        hand=np.zeros(executors, np.int32),
        timeline=records(timeline, TASK),
    )
