"""Random job lists, prepared once, and any number of schedulers run on them.

Episode i of a `JobLists` is always the same jobs, arrivals and task luck, whoever schedules it: so
schedulers are compared in pairs.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger import streams
from ganger.errors import SimulationError
from ganger.simulator import engine
from ganger.simulator.simulate import Cluster, CompiledScheduler, misfit
from ganger.simulator.state import State, new_state
from ganger.simulator.table import TableBuilder
from ganger.streams import Stream
from ganger.workload.arrivals import draw_job_list
from ganger.workload.sources import JobSource, Split, template_weights

MAX_THREADS = 8


class ListedJobs(NamedTuple):
    """The jobs of some lists, each [list, job]."""

    arrival_s: NDArray[np.float64]
    path_s: NDArray[np.float64]
    """Critical path: the longest chain of estimated task durations."""
    weight: NDArray[np.float64]


class JobLists:
    """Job lists of one source, cluster and random stream; `weights` are those of users."""

    def __init__(
        self,
        source: JobSource,
        *,
        cluster: Cluster,
        jobs: int,
        interarrival_s: float,
        seed: int,
        stream: Stream = Stream.EVALUATION,
        split: Split = "test",
        weights: Mapping[str, float] | None = None,
    ) -> None:
        if jobs < 1:
            raise SimulationError(f"jobs is {jobs}; expected 1 or more")
        if not 0 <= interarrival_s < float("inf"):
            raise SimulationError(f"interarrival_s is {interarrival_s}; expected 0 or more")
        if seed < 0:
            raise SimulationError(f"seed is {seed}; expected 0 or more")
        builder = TableBuilder()
        # Templates may be equal, and are then stored once: keep the source's own numbering.
        templates = source.templates(split)
        for stages in templates:
            if why := misfit(cluster, stages):
                raise SimulationError(f"{source.name}: a job can never run: {why}")
        of_templates = template_weights(source, split, weights or {})
        self._template = np.array(list(map(builder.add, templates, of_templates)), np.int32)
        self.table = builder.build()
        self.cluster, self.jobs, self.interarrival_s = cluster, jobs, float(interarrival_s)
        self.seed, self.stream = seed, stream

    def draw(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Template (in `table`) and arrival in seconds of each job of list `index`."""
        templates, arrivals_s = np.empty(self.jobs, np.int32), np.empty(self.jobs)
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

    def new_state(self) -> State:
        """A state with room for any of the lists."""
        stages = self.jobs * int(self.table.templates["stages"].max())
        return new_state(self.jobs, stages, self.cluster.executors)

    def jct_s(self, state: State, scheduler: CompiledScheduler, index: int) -> NDArray[np.float64]:
        """Each job's completion time in list `index` under the scheduler."""
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
        scheduler.run(state, self.table, streams.key(self.seed, Stream.SCHEDULER, index))
        jct_s: NDArray[np.float64] = state.jobs["finish_s"] - arrivals_s
        if unfinished := int(np.isnan(jct_s).sum()):
            raise SimulationError(
                f"{scheduler} left {unfinished} of {self.jobs} jobs of list {index} unfinished: "
                "it declined while nothing was running"
            )
        return jct_s

    def all_jct_s(
        self,
        schedulers: Sequence[CompiledScheduler],
        indices: Sequence[int],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float64]:
        """Completion times [scheduler, list, job], on as many threads as there are cores.

        Args:
            progress: called with the number of episodes done, in the caller's thread.
        """
        jct_s = np.empty((len(schedulers), len(indices), self.jobs))
        of_thread = local()

        def run(at: int) -> None:
            if not hasattr(of_thread, "state"):
                of_thread.state = self.new_state()
            for k, scheduler in enumerate(schedulers):
                jct_s[k, at] = self.jct_s(of_thread.state, scheduler, indices[at])

        done = 0
        for _ in _in_threads(run, len(indices)):
            done += len(schedulers)
            if progress is not None:
                progress(done)
        return jct_s


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
