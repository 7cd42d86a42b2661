"""Training: actors that only act, one learner that only learns, and nobody waits for anybody.

The loop knows its source of trajectories and its publisher only by their protocols.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ganger.errors import TrainingError
from ganger.policy.checkpoint import fingerprint
from ganger.training.actor import ActedTrajectory, Actor, run_actor
from ganger.training.cells import measure_cells
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue
from ganger.training.learner import Learner, NonFiniteError, keep_freed_memory
from ganger.training.objective import training_table
from ganger.training.run_directory import RunDirectory
from ganger.workload import load_source

_log = logging.getLogger(__name__)

_CHECKPOINT_S = 30.0
_RECENT = 32  # episodes whose JCT is averaged for the progress
_LOOK_UP_S = 0.2  # how often a waiting learner looks whether it should stop

Progress = Callable[[dict[str, Any]], None]


class Outcome(NamedTuple):
    """How a training run ended."""

    reason: str
    updates: int
    decisions: int
    run: Path


def train(
    config: TrainConfig,
    run_path: Path,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Train a policy and leave it in a run directory.

    Args:
        config: the settings.
        run_path: a new directory.
        progress: called with the metrics of every update.
        stop: set it to end the run cleanly, with a checkpoint.

    Raises:
        TrainingError: if an actor died or a loss was not finite; what is on disk stays usable.
    """
    stop = stop or threading.Event()
    torch.set_num_threads(1)  # the other cores act
    keep_freed_memory()
    source = load_source(config.workload)
    table = training_table(config, source)
    cells = measure_cells(config, source)
    actors = [Actor(config, table, index) for index in range(config.actors)]
    learner = Learner(config, cells)
    run = RunDirectory.create(run_path, config=config, seed=config.seed)
    store = ParameterStore(learner.policy.vector(), version=0)
    # One trajectory of each actor may wait: the learner always has work, and lag stays near one.
    queue = TrajectoryQueue(config.actors, store)
    threads = [
        threading.Thread(target=run_actor, args=(actor, store, queue), name=f"actor-{actor.index}")
        for actor in actors
    ]
    loop = _Loop(config, run, learner, store, queue)
    try:
        warm_up(config, actors[0], learner)
        for thread in threads:
            thread.start()
        reason = loop.run_until(stop, progress)
    except NonFiniteError as error:
        np.savez(run.path / "failed_batch.npz", **error.tensors)  # type: ignore[arg-type]
        run.stop(f"failed: {error}", step=loop.updates)
        raise
    except TrainingError as error:
        run.stop(f"failed: {error}", step=loop.updates)
        raise
    finally:
        queue.close()
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        learner.close()
        run.close()
    return Outcome(reason, loop.updates, loop.decisions, run.path)


def warm_up(config: TrainConfig, actor: Actor, learner: Learner) -> None:
    """Compile before any clock starts and before any thread does, then forget what was acted."""
    short = Actor(
        TrainConfig(
            **{
                name: getattr(config, name)
                for name in config.__struct_fields__
                if name not in ("environments", "actors", "steps")
            },
            environments=2 * len(config.cells),
            actors=1,
            steps=4,
        ),
        actor.table,
        0,
    )
    acted = short.act(Parameters(learner.policy.vector(), 0))
    trial = Learner(config, learner.cells, learner.policy.vector())
    trial.update([acted.samples], 0.0)
    trial.close()


class _Loop:
    """The learning loop and what it counts."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunDirectory,
        learner: Learner,
        store: ParameterStore,
        queue: TrajectoryQueue,
    ) -> None:
        self.updates = 0
        self.decisions = 0
        self._config = config
        self._run = run
        self._learner = learner
        self._store = store
        self._queue = queue
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)
        self._saved_at = self._begin = time.perf_counter()

    def run_until(self, stop: threading.Event, progress: Progress | None) -> str:
        """Learn until the time is up or somebody asks to stop; returns why it ended."""
        self._saved_at = self._begin = time.perf_counter()
        budget_s = self._config.minutes * 60
        limit = self._config.decisions
        reason = "time"
        while (elapsed_s := time.perf_counter() - self._begin) < budget_s:
            done = 0.0 if limit is None else self.decisions / limit
            if done >= 1:
                reason = "decisions"
                break
            trajectories = self._collect(stop)
            if stop.is_set():
                reason = "stopped"
                break
            metrics = self._learner.update(
                [trajectory.payload.samples for trajectory in trajectories],
                max(elapsed_s / budget_s, done),
            )
            lags = [self.updates - t.header.policy_version for t in trajectories]
            self.updates += 1
            self._store.publish(self._learner.policy.vector(), self.updates)
            self._account(metrics, trajectories, lags)
            self._run.record(self.updates, metrics)
            if progress:
                progress(metrics)
            if time.perf_counter() - self._saved_at > _CHECKPOINT_S:
                self.save()
        self.save()
        self._run.stop(reason, step=self.updates)
        return reason

    def _collect(self, stop: threading.Event) -> list[Any]:
        """One trajectory for each actor's share of the environments, in order of arrival."""
        collected: list[Any] = []
        while len(collected) < self._config.actors and not stop.is_set():
            wanted = self._config.actors - len(collected)
            collected += self._queue.get(wanted, timeout_s=_LOOK_UP_S)
        return collected

    def _account(self, metrics: dict[str, Any], trajectories: list[Any], lags: list[int]) -> None:
        acted: list[ActedTrajectory] = [trajectory.payload for trajectory in trajectories]
        elapsed_s = time.perf_counter() - self._begin
        decisions = self._config.environments * self._config.steps
        self.decisions += decisions
        waiting = self._queue.waiting()
        for one in acted:
            for outcome in one.outcomes:
                self._recent.append((outcome.mean_jct_s, outcome.fair_mean_jct_s, outcome.ratio))
        mine, fair, ratio = np.array(self._recent).reshape(-1, 3).T
        metrics |= {
            "elapsed_s": elapsed_s,
            "decisions": self.decisions,
            "decisions_per_s": self.decisions / elapsed_s,
            "acting_decisions_per_s": decisions / max(sum(one.seconds for one in acted), 1e-9),
            "learning_decisions_per_s": decisions / metrics["update_s"],
            "learner_idle_share": waiting.learner_s / elapsed_s,
            "actor_idle_share": sum(waiting.actors_s.values()) / elapsed_s / self._config.actors,
            "lag_mean": float(np.mean(lags)),
            "lag_max": max(lags),
            "queue_depth": self._queue.depth,
            "recent_jct_s": float(mine.mean()) if len(mine) else None,
            "recent_fair_jct_s": float(fair.mean()) if len(fair) else None,
            "recent_ratio": float(ratio.mean()) if len(ratio) else None,
        }

    def save(self) -> None:
        """Write a checkpoint."""
        config, learner = self._config, self._learner
        tensors: dict[str, Any] = {
            "policy": learner.policy.vector(),
            "critic": learner.critic.vector(),
            "critic_scale": np.array([learner.critic.mean, learner.critic.scale]),
        }
        metadata = {
            "messages": config.messages,
            "layout": fingerprint(config.messages),
            "workload": config.workload,
            "executors": config.executors,
            "move_delay_s": config.move_delay_s,
            "jobs": config.jobs,
            "interarrival_s": config.interarrival_s,
            "objective": config.objective,
            "weights": config.weights,
            "decisions": self.decisions,
            "seed": config.seed,
        }
        self._run.save_checkpoint(self.updates, tensors, metadata)
        self._saved_at = time.perf_counter()
