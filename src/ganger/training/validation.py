"""How good the policy is by now: on job lists that are neither trained on nor evaluated on."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.evaluation.compare import BASELINE, ratio_to_fair
from ganger.evaluation.episodes import JobLists, ListedJobs
from ganger.evaluation.metrics import BOUND_S
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, CompiledScheduler
from ganger.streams import Stream
from ganger.training.config import TrainConfig
from ganger.workload import JobSource

LISTS = 24
# Strong at one load or another; the best of them on the validation lists is the bar.
HEURISTICS = (
    "fair:source=capped",
    "kshortest:k=2",
    "kshortest:k=3",
    "srpt:cap=useful,leftover=idle",
    "srpt:cap=sqrt,c=0.3",
    "srpt:cap=sqrt,c=1",
)

Figures = Callable[[NDArray[np.float64], ListedJobs], NDArray[np.float64]]

# What each objective makes small, of completion times [list, job]; per list.
FIGURES: dict[str, Figures] = {
    "mean": lambda jct_s, jobs: jct_s.mean(axis=1),
    "weighted": lambda jct_s, jobs: np.average(jct_s, axis=1, weights=jobs.weight),
    "slowdown": lambda jct_s, jobs: (jct_s / np.maximum(jobs.path_s, BOUND_S)).mean(axis=1),
    "tail": lambda jct_s, jobs: np.sqrt((jct_s**2).mean(axis=1)),
    "makespan": lambda jct_s, jobs: (jobs.arrival_s + jct_s).max(axis=1),
}


class Validation(NamedTuple):
    """A policy's figure relative to fair's, mean over lists and cells."""

    step: int
    argmax: float
    sampled: float
    heuristic: float
    """Of the best heuristic in each cell."""
    seconds: float

    @property
    def ratio(self) -> float:
        """Of the better way to decide."""
        return min(self.argmax, self.sampled)


class Validator:
    """The validation lists of each cell, and what fair and the best heuristic make of them."""

    def __init__(self, config: TrainConfig, source: JobSource) -> None:
        self._config = config
        self._figure = FIGURES[config.objective]
        self._lists = [
            JobLists(
                source,
                cluster=Cluster(executors=executors, move_delay_s=config.move_delay_s),
                jobs=config.jobs,
                interarrival_s=interarrival_s,
                seed=config.seed,
                stream=Stream.VALIDATION,
                split="train",
                weights=config.weights,
            )
            for executors, interarrival_s in config.cells
        ]
        # A dozen cells are steadier than one, so each needs fewer lists.
        self._indices = range(max(2, LISTS // len(self._lists)))
        self._fair: list[NDArray[np.float64]] = []
        heuristics = [parse_scheduler(spelling) for spelling in HEURISTICS]
        best = []
        for lists in self._lists:
            fair, *others = self._figures(lists, [BASELINE, *heuristics])
            self._fair.append(fair)
            best.append(min(float(ratio_to_fair(other, fair).mean()) for other in others))
        self.heuristic = float(np.mean(best))

    def validate(self, vector: NDArray[np.float32], step: int) -> Validation:
        """Run the policy on every list; takes a second or two, without the GIL."""
        begin = time.perf_counter()
        messages = self._config.messages
        policies = [PolicyScheduler(vector, messages=messages, sample=s) for s in (False, True)]
        ratios = []
        for lists, fair in zip(self._lists, self._fair, strict=True):
            figures = self._figures(lists, policies)
            ratios.append([float(ratio_to_fair(figure, fair).mean()) for figure in figures])
        argmax, sampled = np.mean(ratios, axis=0)
        seconds = time.perf_counter() - begin
        return Validation(step, float(argmax), float(sampled), self.heuristic, seconds)

    def _figures(
        self, lists: JobLists, schedulers: Sequence[CompiledScheduler]
    ) -> list[NDArray[np.float64]]:
        # In this thread only: the other cores train.
        state = lists.new_state()
        jobs = lists.jobs_of(self._indices)
        return [
            self._figure(np.array([lists.jct_s(state, s, i) for i in self._indices]), jobs)
            for s in schedulers
        ]
