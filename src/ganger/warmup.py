"""Compiling ahead of time: each function runs on tiny jobs what a command is about to call.

Numba compiles a function when it is first called and keeps the machine code on disk (`compiled`).
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from ganger.compiled import JIT, cache_home
from ganger.evaluation import evaluate
from ganger.planning import PlanningScheduler
from ganger.policy.layout import aligned_zeros, vector_size
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import Drf, Fair, Fcfs
from ganger.simulator.observation import Decision, Observation
from ganger.simulator.simulate import Cluster, CompiledScheduler, simulate
from ganger.workload import FileSource, Job, Pool, Stage, Workload

_JOBS = Workload(
    tuple(
        Job(
            id=str(i),
            arrival_s=float(i),
            stages=(
                Stage(id="read", task_count=2, durations=Pool((1.0, 2.0))),
                Stage(id="sum", parents=("read",), task_count=1, durations=Pool((1.0,))),
            ),
        )
        for i in range(2)
    )
)
_SOURCE = FileSource("tiny", _JOBS)


def compile_heuristics() -> None:
    """The simulator and the built-in schedulers."""
    _run(Fair())


def compile_batch() -> None:
    """The schedulers of batch jobs, and those that look at sizes."""
    _run(Fcfs(backfill="easy"), Drf())


def compile_protocol() -> None:
    """What schedulers written in Python need, and the built-in ones when asked by Observation."""

    class InPython:
        def decide(self, observation: Observation) -> Decision | None:
            Fair().decide(observation)
            _policy(False, sample=False).decide(observation)
            job = next(job for job in observation.jobs if job.schedulable)
            return Decision(job=job.id, stage=job.schedulable[0].id, limit=1)

    class Idle:
        def decide(self, observation: Observation) -> Decision | None:
            busy = any(stage.executors for job in observation.jobs for stage in job.stages)
            return None if busy else InPython().decide(observation)

    for scheduler in (InPython(), Idle()):
        simulate(Cluster(executors=2), _JOBS, scheduler)


def compile_policy(messages: bool = False) -> None:
    """Learned schedulers, and what they are compared with."""
    _run(Fair(), _policy(messages, sample=False), _policy(messages, sample=True))


def compile_planning(messages: bool = False) -> None:
    """Learned schedulers that look ahead."""
    _run(PlanningScheduler(aligned_zeros(vector_size(messages)), messages=messages))


def compile_training(messages: bool = False) -> None:
    """The actors' and the learner's loops, and what validation runs; needs torch."""
    from ganger.simulator.table import build_table
    from ganger.training.actor import Actor
    from ganger.training.cells import measure_cells
    from ganger.training.config import TrainConfig
    from ganger.training.exchange import Parameters
    from ganger.training.learner import Learner
    from ganger.training.team import warm_up

    compile_policy(messages)
    config = TrainConfig(
        executors=2, jobs=2, interarrival_s=1.0, environments=2, steps=16, messages=messages
    )
    actor = Actor(config, build_table(_SOURCE.templates("train")), 0)
    learner = Learner(config, measure_cells(config, _SOURCE))
    acted = actor.act(Parameters(learner.policy.vector(), 0))
    assert acted.outcomes, "no episode ended, so none was replayed under fair"
    warm_up(config, actor.table, learner)


def _policy(messages: bool, *, sample: bool) -> PolicyScheduler:
    return PolicyScheduler(aligned_zeros(vector_size(messages)), messages=messages, sample=sample)


def _run(*schedulers: CompiledScheduler) -> None:
    few: dict[str, Any] = {"executors": 2, "jobs": 1, "episodes": 1, "seed": 0}
    for interarrival_s in (1.0, None):  # random lists, windows
        evaluate(_SOURCE, schedulers, interarrival_s=interarrival_s, **few)


def kept_in() -> Path | None:
    """Where the next process finds what this one compiles; None if it cannot be kept."""
    directory = Path(numba.config.CACHE_DIR)
    return directory if JIT and directory.is_relative_to(cache_home()) else None


@contextmanager
def compile_notice() -> Iterator[None]:
    """Say so on standard error if something is compiled, where it is kept and how long it took."""
    notice = _Notice()
    event.register("numba:compile", notice)
    try:
        yield
    finally:
        event.unregister("numba:compile", notice)
        if notice.began is not None:
            _say(f"Compiled in {time.perf_counter() - notice.began:.0f} s.")


class _Notice(event.Listener):  # type: ignore[misc]  # numba ships no annotations
    began: float | None = None

    def on_start(self, event: Any) -> None:
        if self.began is None:
            self.began = time.perf_counter()
            if directory := kept_in():
                _say(f"Compiling, once; machine code is kept in {directory}")
            else:
                _say(f"Compiling, for this process only: {cache_home()} cannot be written to")

    def on_end(self, event: Any) -> None:
        pass


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
