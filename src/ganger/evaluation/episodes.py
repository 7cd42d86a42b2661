"""Job lists, prepared once, and any number of schedulers run on them.

Episode i of a `JobLists` is always the same jobs, arrivals and task luck, whoever schedules it: so
schedulers are compared in pairs. The lists of a log are windows of it. Those of jobs without
arrivals of their own are random, and so are a log's if a time between arrivals is given.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger import streams
from ganger.errors import SimulationError
from ganger.evaluation.replay import recorded_s
from ganger.simulator import engine
from ganger.simulator.simulate import Cluster, CompiledScheduler
from ganger.simulator.state import State, new_state
from ganger.simulator.table import TableBuilder, build_log_table
from ganger.streams import Stream
from ganger.workload.arrivals import copy_window, draw_job_list, window_starts
from ganger.workload.model import Job
from ganger.workload.sources import (
    JobSource,
    Split,
    arrivals_of,
    job_weights,
    template_weights,
)
from ganger.workload.verdicts import (
    measured_work_s,
    never_fit,
    refuse_misfits,
    template_verdicts,
)

MAX_THREADS = 8


class Replay:
    """In place of a scheduler: what the log says became of its jobs."""

    def __str__(self) -> str:
        return "replay"


class Outcomes(NamedTuple):
    """What became of the jobs of lists."""

    jct_s: NDArray[np.float64]
    """Completion times, [..., jobs]."""
    wait_s: NDArray[np.float64]
    """From arrival to the first task, [..., jobs]."""
    busy_s: NDArray[np.float64]
    """Executor-seconds of all tasks of a list, [...]."""
    killed: NDArray[np.int64]
    """Jobs of a list that were stopped at their limit, [...]."""

    def of(self, k: int) -> "Outcomes":
        """Those of one scheduler, where the first axis is schedulers."""
        return Outcomes(self.jct_s[k], self.wait_s[k], self.busy_s[k], self.killed[k])


class ListedJobs(NamedTuple):
    """The jobs of some lists, each [list, job]."""

    arrival_s: NDArray[np.float64]
    path_s: NDArray[np.float64]
    """Critical path: the longest chain of real mean task durations, whatever was estimated."""
    weight: NDArray[np.float64]


class JobLists:
    """Job lists of one source, cluster and random stream.

    Args:
        jobs: in a list; None: all those of the log.
        interarrival_s: mean time between random arrivals; None: a log's own ones, if it is a log.
        weights: of users.
        kill_at_limit: stop a gang when it has run as long as was asked for.
        censor: jobs that a scheduler leaves unfinished have a completion time of NaN; else that is
            an error.

    Raises:
        WorkloadError: a job can never run on the cluster.
        SimulationError: the lists make no sense.
    """

    def __init__(
        self,
        source: JobSource,
        *,
        cluster: Cluster,
        jobs: int | None,
        interarrival_s: float | None,
        seed: int,
        stream: Stream = Stream.EVALUATION,
        split: Split = "test",
        weights: Mapping[str, float] | None = None,
        kill_at_limit: bool = False,
        censor: bool = False,
    ) -> None:
        if jobs is not None and jobs < 1:
            raise SimulationError(f"jobs is {jobs}; expected 1 or more")
        if seed < 0:
            raise SimulationError(f"seed is {seed}; expected 0 or more")
        arrivals = arrivals_of(source, split, interarrival_s)
        self.cluster, self.seed, self.stream = cluster, seed, stream
        self._kill_at_limit, self._censor = kill_at_limit, censor
        self._log: tuple[Job, ...] = ()
        if isinstance(arrivals, tuple):
            named = ((job.id, job.stages) for job in arrivals)
            refuse_misfits(never_fit(named, cluster.executors, cluster.classes))
            self._log = arrivals
            self.jobs = len(arrivals) if jobs is None else jobs
            self._starts = window_starts(len(arrivals), self.jobs)
            """Of a log, where its windows begin."""
            if not self._starts:
                raise SimulationError(
                    f"{source.name}: there are {len(arrivals)} jobs, fewer than the {jobs} of a "
                    "list; expected at most as many, or random arrivals"
                )
            self.table = build_log_table(arrivals, job_weights(arrivals, weights or {}))
            return
        if jobs is None:
            raise SimulationError("random lists end nowhere; say how many jobs they have")
        templates = source.templates(split)
        refuse_misfits(template_verdicts(templates, cluster.executors, 0.0, cluster.classes))
        self.jobs, self.interarrival_s, self._starts = jobs, arrivals, []
        builder = TableBuilder()
        # Templates may be equal, and are then stored once: keep the source's own numbering.
        of_templates = template_weights(source, split, weights or {})
        self._template = np.array(list(map(builder.add, templates, of_templates)), np.int32)
        self.table = builder.build()

    def first(self, count: int) -> range:
        """The first lists, at most so many: random lists never end, windows of a log do."""
        return range(min(count, len(self._starts)) if self._starts else count)

    def draw(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Template (in `table`) and arrival in seconds of each job of list `index`."""
        templates, arrivals_s = np.empty(self.jobs, np.int32), np.empty(self.jobs)
        if self._starts:
            log, first = self.table, self._starts[index]
            copy_window(
                first, self.jobs, log.log_templates, log.log_arrivals_s, templates, arrivals_s
            )
            return templates, arrivals_s
        key = streams.key(self.seed, self.stream, index)
        count = len(self._template)
        draw_job_list(key, self.jobs, self.interarrival_s, count, templates, arrivals_s)
        return self._template[templates], arrivals_s

    def jobs_of(self, indices: Sequence[int]) -> ListedJobs:
        """What is known of the jobs of these lists, whoever schedules them."""
        lists = [self.draw(index) for index in indices]
        drawn = self.table.templates[np.array([templates for templates, _ in lists])]
        arrival_s = np.array([arrivals_s for _, arrivals_s in lists])
        return ListedJobs(arrival_s, np.array(drawn["path_s"]), np.array(drawn["weight"]))

    def work_s(self, index: int) -> NDArray[np.float64]:
        """Executor-seconds that each job of list `index` is expected to take."""
        return np.array(self.table.templates["work_s"][self.draw(index)[0]])

    def log_jobs(self, index: int) -> tuple[Job, ...]:
        """The log's own jobs of list `index`; none where the lists are random."""
        if not self._log:
            return ()
        return self._log[self._starts[index] : self._starts[index] + self.jobs]

    def new_state(self, timeline: int = 0) -> State:
        """A state with room for any of the lists, and for records of so many tasks."""
        stages = self.jobs * int(self.table.templates["stages"].max())
        return new_state(self.jobs, stages, self.cluster.executors, timeline)

    def jct_s(self, state: State, scheduler: CompiledScheduler, index: int) -> NDArray[np.float64]:
        """Each job's completion time in list `index` under the scheduler."""
        return self.outcomes(state, scheduler, index).jct_s

    def outcomes(self, state: State, scheduler: CompiledScheduler | Replay, index: int) -> Outcomes:
        """What becomes of each job in list `index` under the scheduler."""
        if isinstance(scheduler, Replay):
            return self._recorded(index)
        templates, arrivals_s = self.draw(index)
        # Lists of the same index, but of different streams, share no luck.
        luck = streams.key(self.seed, Stream.DURATIONS, index)
        durations = np.uint64(streams.derive(luck, int(self.stream)))
        engine.load(
            state,
            self.table,
            templates,
            arrivals_s,
            self.cluster.executors,
            self.cluster.move_delay_s,
            durations,
        )
        state.clock[0]["kill_at_limit"] = self._kill_at_limit
        self.cluster.prepare(state, self.table)
        scheduler.run(state, self.table, streams.key(self.seed, Stream.SCHEDULER, index))
        jct_s: NDArray[np.float64] = state.jobs["finish_s"] - arrivals_s
        if (unfinished := int(np.isnan(jct_s).sum())) and not self._censor:
            raise SimulationError(
                f"{scheduler} left {unfinished} of {self.jobs} jobs of list {index} unfinished: "
                "it declined while nothing was running"
            )
        return Outcomes(
            jct_s,
            state.jobs["first_start_s"] - arrivals_s,
            np.array(state.clock[0]["busy_s"]),
            np.array(state.jobs["killed"].sum(), np.int64),
        )

    def _recorded(self, index: int) -> Outcomes:
        """What the log says."""
        if not self._log:
            raise SimulationError("only a log with its own arrivals can be replayed")
        first = self._starts[index]
        window = self._log[first : first + self.jobs]
        arrival_s = np.array([job.arrival_s for job in window])
        start_s, finish_s = recorded_s(window)
        busy_s = math.fsum(measured_work_s(job.stages) for job in window)
        return Outcomes(
            finish_s - arrival_s, start_s - arrival_s, np.array(busy_s), np.array(0, np.int64)
        )

    def all_jct_s(
        self,
        schedulers: Sequence[CompiledScheduler],
        indices: Sequence[int],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float64]:
        """Completion times [scheduler, list, job]; as `all_outcomes`."""
        return self.all_outcomes(schedulers, indices, progress=progress).jct_s

    def all_outcomes(
        self,
        schedulers: Sequence[CompiledScheduler | Replay],
        indices: Sequence[int],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Outcomes:
        """Outcomes [scheduler, list, ...], on as many threads as there are cores.

        Args:
            progress: called with the number of episodes done, in the caller's thread.
        """
        lists = len(schedulers), len(indices)
        found = Outcomes(
            np.empty((*lists, self.jobs)),
            np.empty((*lists, self.jobs)),
            np.empty(lists),
            np.empty(lists, np.int64),
        )
        of_thread = local()

        def run(at: int) -> None:
            if not hasattr(of_thread, "state"):
                of_thread.state = self.new_state()
            for k, scheduler in enumerate(schedulers):
                one = self.outcomes(of_thread.state, scheduler, indices[at])
                for into, value in zip(found, one, strict=True):
                    into[k, at] = value

        done = 0
        for _ in _in_threads(run, len(indices)):
            done += len(schedulers)
            if progress is not None:
                progress(done)
        return found


def usable_cores() -> int:
    """Cores that this process may use; all that there are where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_threads(function: Callable[[int], None], count: int) -> Iterator[None]:
    """Call function(0), ..., function(count - 1), a few at a time; the first error is raised."""
    threads = min(usable_cores(), MAX_THREADS, count)
    if threads <= 1:
        yield from map(function, range(count))
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="episodes")
    try:
        yield from pool.map(function, range(count))
    finally:
        pool.shutdown(cancel_futures=True)
