"""Validation: how the policy does, while it is trained, on job lists that it is not trained on.

The lists are fixed, the same for every seed of training, and made of the workload's training jobs:
random ones by a random stream of their own, those of a log windows spread evenly over it. What
`ganger evaluate` draws stays unseen by every choice that training makes. Each cell of the run has
lists of its own; ratios are means over cells.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.evaluation.compare import BASELINE, ratio_to
from ganger.evaluation.episodes import JobLists, ListedJobs
from ganger.evaluation.metrics import dag_slowdown
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, CompiledScheduler
from ganger.streams import Stream
from ganger.training.config import TrainConfig
from ganger.workload import JobSource

_LISTS = 16
_SEED = 0

HEURISTICS = (
    *("fair:source=capped", "wfair:alpha=0", "wfair:alpha=-0.5", "srpt"),
    *("srpt:cap=sqrt,c=0.3", "srpt:cap=sqrt,c=1", "srpt:cap=useful,leftover=idle"),
    *("srpt:cap=useful,c=0.05,a=0", "srpt:cap=useful,c=0.3,a=0.5"),
    *("kshortest:k=2", "kshortest:k=3", "kshortest:k=4", "kshortest:k=6"),
)
"""A few of what `ganger tune` searches; in each cell the best of them is what is to be beaten."""


class Validation(NamedTuple):
    """How a policy did; the objective's figure relative to another scheduler's, lower is better."""

    argmax: float
    """To fair's, taking the most probable action."""
    sampled: float
    """To fair's, drawing actions from the policy."""
    to_heuristic: float
    """To the best heuristic's, in the better of the two modes."""
    seconds: float

    @property
    def ratio(self) -> float:
        """To fair's, in the better of the two modes: what the best checkpoint is chosen by."""
        return min(self.argmax, self.sampled)


class _CellLists(NamedTuple):
    """One cell's lists and what there is to beat; figures are of [lists]."""

    lists: JobLists
    jobs: ListedJobs
    fair: NDArray[np.float64]
    heuristic: NDArray[np.float64]


class Validator:
    """Fixed job lists for every cell, and what fair and the best heuristic do on them."""

    def __init__(
        self, config: TrainConfig, source: JobSource, give_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Choose the heuristics; seconds for each cell, so `give_up` is asked all along."""
        self._objective = config.objective
        self._messages = config.messages
        self.heuristics: list[str] = []
        """The best heuristic of each cell."""
        self._cells: list[_CellLists] = []
        for cell in config.cells:
            if give_up() or (lists := self._cell(config, source, *cell, give_up)) is None:
                break
            self._cells.append(lists)
        self._complete = len(self._cells) == len(config.cells)

    def _cell(
        self,
        config: TrainConfig,
        source: JobSource,
        executors: int,
        interarrival_s: float | None,
        give_up: Callable[[], bool],
    ) -> _CellLists | None:
        lists = JobLists(
            source,
            cluster=Cluster(
                executors=executors,
                move_delay_s=config.move_delay_s,
                reconsider=config.reconsider,
                work_conserving=config.work_conserving,
            ),
            jobs=config.jobs,
            interarrival_s=interarrival_s,
            seed=_SEED,
            stream=Stream.VALIDATION,
            split=config.part,
            weights=config.weights,
        )
        indices = lists.first(_LISTS)
        jobs = lists.jobs_of(indices)
        contenders = [BASELINE, *map(parse_scheduler, HEURISTICS)]
        jct_s = np.empty((len(contenders), len(indices), config.jobs))
        for k, contender in enumerate(contenders):
            if give_up():
                return None
            jct_s[k] = lists.all_jct_s([contender], indices)[0]
        figures = own_figures(config.objective, jct_s, jobs)
        best = 1 + int(np.argmin([ratio_to(own, figures[0]).mean() for own in figures[1:]]))
        self.heuristics.append(HEURISTICS[best - 1])
        return _CellLists(lists, jobs, figures[0], figures[best])

    def warm_up(self, vector: NDArray[np.float32]) -> None:
        """Compile what validating calls."""
        for mode in self._modes(vector):
            for cell in self._cells[:1]:
                cell.lists.jct_s(cell.lists.new_state(), mode, 0)

    def validate(
        self, vector: NDArray[np.float32], give_up: Callable[[], bool] = lambda: False
    ) -> Validation | None:
        """Run a policy on all lists, in the caller's thread alone: the other cores act and learn.

        Args:
            give_up: asked before each list; True ends it, and there is no result.
        """
        if not self._complete:
            return None
        begin = time.perf_counter()
        modes = self._modes(vector)
        to_fair = np.empty((len(modes), len(self._cells)))
        to_heuristic = np.empty_like(to_fair)
        for k, cell in enumerate(self._cells):
            state = cell.lists.new_state()
            indices = cell.lists.first(_LISTS)
            jct_s = np.empty((len(modes), len(indices), cell.lists.jobs))
            for index in indices:
                if give_up():
                    return None
                for m, mode in enumerate(modes):
                    jct_s[m, index] = cell.lists.jct_s(state, mode, index)
            for m, own in enumerate(own_figures(self._objective, jct_s, cell.jobs)):
                to_fair[m, k] = ratio_to(own, cell.fair).mean()
                to_heuristic[m, k] = ratio_to(own, cell.heuristic).mean()
        argmax, sampled = to_fair.mean(axis=1).tolist()
        better = int(sampled < argmax)
        seconds = time.perf_counter() - begin
        return Validation(argmax, sampled, float(to_heuristic[better].mean()), seconds)

    def _modes(self, vector: NDArray[np.float32]) -> list[CompiledScheduler]:
        return [
            PolicyScheduler(vector, messages=self._messages, sample=sample)
            for sample in (False, True)
        ]


def own_figures(
    objective: str, jct_s: NDArray[np.float64], jobs: ListedJobs
) -> NDArray[np.float64]:
    """What the objective makes small, per list: [schedulers, lists] of [schedulers, lists, jobs].

    A (weighted) mean completion time, a root mean square one, a mean slowdown or a makespan.
    """
    if objective == "slowdown":
        figures = dag_slowdown(jct_s, jobs.path_s).mean(axis=2)
    elif objective == "tail":
        figures = np.sqrt((jct_s**2).mean(axis=2))
    elif objective == "makespan":
        figures = (jobs.arrival_s + jct_s).max(axis=2)  # the first job arrives at 0
    else:  # all weights are 1 for the mean
        figures = (jct_s * jobs.weight).sum(axis=2) / jobs.weight.sum(axis=1)
    return np.asarray(figures, np.float64)
