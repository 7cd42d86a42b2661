"""Training: actors that only act, one learner that only learns, and nobody waits for anybody.

In a synchronous run they take turns instead. The loop is the same.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ganger.errors import ConfigError, GangerError
from ganger.policy.checkpoint import fingerprint
from ganger.training import engines
from ganger.training.actor import ActedTrajectory, Actor
from ganger.training.cells import measure_cells
from ganger.training.config import TrainConfig
from ganger.training.exchange import TrajectorySource
from ganger.training.exchange.local import ParameterStore
from ganger.training.learner import Learner, NonFiniteError, keep_freed_memory
from ganger.training.objective import training_table
from ganger.training.restart import clusters_of, refuse_changed, restored, start_from
from ganger.training.run_directory import RunDirectory
from ganger.training.stopping import (
    INTERRUPTED,
    STOPPED,
    Position,
    reason_to_stop,
    share_done,
    validated,
)
from ganger.training.team import Team, collect, learner_threads, warm_up
from ganger.training.validation import Validation, Validator
from ganger.workload import JobSource, load_source

_log = logging.getLogger(__name__)

_CHECKPOINT_S = 30.0
_RECENT = 32  # episodes whose JCT is averaged for the progress
_SYNC_VALIDATIONS = 20  # in a synchronous run, which does not look at the clock
_LAST_VALIDATION_S = 2.0  # at most: with an update under way a run ends within five
_LOOK_UP_S = 0.2  # how often a waiting learner looks whether it should stop

Progress = Callable[[dict[str, Any]], None]


class Outcome(NamedTuple):
    """How a training run ended."""

    reason: str
    updates: int
    decisions: int
    run: Path
    best_ratio: float | None
    """The lowest validation ratio; None if nothing was validated."""


def train(
    config: TrainConfig,
    run_path: Path,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    resume: bool = False,
    init: Path | None = None,
    source: JobSource | None = None,
) -> Outcome:
    """Train a policy and leave it in a run directory.

    Args:
        config: the settings.
        run_path: a new directory, or with `resume` that of a run.
        progress: called with the metrics of every update.
        stop: set it to end the run cleanly, with a checkpoint.
        resume: go on with the run from its newest intact checkpoint; only limits may have changed.
        init: a checkpoint or run whose policy to start from, with its critic where it is there.
        source: what config.workload names, if that has been loaded already.

    Raises:
        ConfigError: the settings contradict each other, or those of the run to resume.
        CheckpointError: if there is nothing that can be resumed or started from.
        TrainingError: if an actor died or a loss was not finite; what is on disk stays usable.
    """
    if resume and init is not None:
        raise ConfigError("a resumed run goes on from its own checkpoint; leave out init")
    if resume:
        refuse_changed(config, RunDirectory.open(run_path).config(TrainConfig), run_path)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no GPU here; leave it out, or cpu")
    start = None if init is None else start_from(init, config)
    stop = stop or threading.Event()
    torch.set_num_threads(1)  # the other cores act
    keep_freed_memory()
    source = source or load_source(config.workload)
    table = training_table(config, source)
    cells = measure_cells(config, source)
    with ExitStack() as ending:
        vector = None if start is None else start["policy"]
        learner = Learner(config, cells, vector, learner_threads(config))
        ending.callback(learner.close)
        if start is not None and "critic" in start:
            learner.restore_critic(start)
        position, generation = Position(), 0
        if resume:
            run, checkpoint = RunDirectory.resume(run_path)
            ending.callback(run.close)
            position, generation = restored(config, learner, checkpoint, run.best_checkpoint())
        places = config.places(0)
        actors = engines.actors_here(config, table, generation, places)
        if resume:
            if config.sync:
                for actor in actors:
                    actor.restore(clusters_of(actor, checkpoint))
            run.write_config(config)
        else:
            run = RunDirectory.create(run_path, config=config, seed=config.seed)
            ending.callback(run.close)
        store = ParameterStore(learner.policy.vector(), version=position.updates)
        try:
            warm_up(config, table, learner)
            validator = None
            if config.validate_every_s:
                validator = Validator(config, source, stop.is_set)
                validator.warm_up(store.newest().vector)
            with (
                engines.opened(config),
                Team(config, table, learner, generation) as team,
                engines.acting(config, table, store, actors, generation, places) as exchange,
            ):
                loop = _Loop(
                    config, run, learner, team, store, exchange, actors, position, generation
                )
                loop.validator = validator
                try:
                    reason = loop.run_until(stop, progress)
                finally:
                    loop.close()
        except NonFiniteError as error:
            np.savez(run.path / "failed_batch.npz", **error.tensors)  # type: ignore[arg-type]
            run.stop(f"failed: {error}", step=store.newest().version)
            raise
        except GangerError as error:
            run.stop(f"failed: {error}", step=store.newest().version)
            raise
    ended = loop.position
    return Outcome(reason, ended.updates, ended.decisions, run.path, ended.best_ratio)


class _Snapshot(NamedTuple):
    """What a checkpoint will hold."""

    step: int
    tensors: dict[str, Any]


class _Loop:
    """The learning loop and what it counts."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunDirectory,
        learner: Learner,
        team: Team,
        store: ParameterStore,
        exchange: TrajectorySource,
        actors: list[Actor],
        position: Position,
        generation: int,
    ) -> None:
        self.position = position
        self.validator: Validator | None = None
        self._config = config
        self._run = run
        self._learner = learner
        self._team = team
        self._store = store
        self._exchange = exchange
        self._actors = actors
        self._own_threads = config.acting_threads // config.learners
        self._generation = generation
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)
        self._before = position  # where this session began
        self._saved_at = self._begin = time.perf_counter()
        self._in_background = ThreadPoolExecutor(1, thread_name_prefix="validation")
        self._abandon = threading.Event()
        self._pending: tuple[_Snapshot, Future[Validation | None]] | None = None
        self._validated_at = self._begin
        self._validated_step = -1
        self._validated_share = 0.0
        self._latest: Validation | None = None

    def run_until(self, stop: threading.Event, progress: Progress | None) -> str:
        """Learn until a limit is met or somebody asks to stop; returns why it ended."""
        config = self._config
        self._saved_at = self._validated_at = self._begin = time.perf_counter()
        self._validated_share = share_done(config, self.position)
        while (reason := reason_to_stop(config, self.position)) is None:
            trajectories = collect(self._exchange, self._own_threads, stop.is_set)
            # What was acted in turns must be learned from, or a resumed run would differ.
            if not trajectories or (stop.is_set() and not config.sync):
                reason = STOPPED
                break
            metrics = self._team.update(
                trajectories, share_done(config, self.position), self._exchange.counts()
            )
            lags = [self.position.updates - t.header.policy_version for t in trajectories]
            self._advance()
            self._store.publish(self._learner.policy.vector(), self.position.updates)
            self._account(metrics, trajectories, lags)
            self._run.record(self.position.updates, metrics)
            self._validate_when_due()
            if progress:
                progress(metrics | self._shown())
            if time.perf_counter() - self._saved_at > _CHECKPOINT_S:
                self.save(self._snapshot())
        self._finish(reason)
        self._run.stop(reason, step=self.position.updates)
        return reason

    def close(self) -> None:
        """End its thread."""
        self._abandon.set()
        self._in_background.shutdown()

    def _advance(self) -> None:
        """Count an update."""
        self.position = self.position._replace(
            elapsed_s=self._before.elapsed_s + time.perf_counter() - self._begin,
            decisions=self.position.decisions + self._config.environments * self._config.steps,
            updates=self.position.updates + 1,
        )

    def _account(self, metrics: dict[str, Any], trajectories: list[Any], lags: list[int]) -> None:
        acted: list[ActedTrajectory] = [trajectory.payload for trajectory in trajectories]
        session_s = self.position.elapsed_s - self._before.elapsed_s
        decisions = self._config.environments * self._config.steps
        own_decisions = decisions // self._config.learners
        waiting = self._exchange.waiting()
        # A resumed run's actors must have random streams that no actor of this one had.
        self._generation = max(self._generation, metrics.pop("generation"))
        for one in acted:
            for outcome in one.outcomes:
                self._recent.append((outcome.mean_jct_s, outcome.fair_mean_jct_s, outcome.ratio))
        mine, fair, ratio = np.array(self._recent).reshape(-1, 3).T
        metrics |= {
            "elapsed_s": self.position.elapsed_s,
            "decisions": self.position.decisions,
            "decisions_per_s": (self.position.decisions - self._before.decisions) / session_s,
            "acting_decisions_per_s": own_decisions / max(sum(one.seconds for one in acted), 1e-9),
            "learning_decisions_per_s": decisions / metrics["update_s"],
            "learner_idle_share": waiting.learner_s / session_s,
            "actor_idle_share": sum(waiting.actors_s.values()) / session_s / self._own_threads,
            "lag_mean": float(np.mean(lags)),
            "lag_p95": float(np.percentile(lags, 95)),
            "queue_depth": self._exchange.depth,
            "recent_jct_s": float(mine.mean()) if len(mine) else None,
            "recent_fair_jct_s": float(fair.mean()) if len(fair) else None,
            "recent_ratio": float(ratio.mean()) if len(ratio) else None,
        }

    def _shown(self) -> dict[str, Any]:
        """What the progress shows beside an update's metrics."""
        latest = self._latest
        return {
            "share_done": share_done(self._config, self.position),
            "validation_ratio": latest.ratio if latest else None,
            "validation_to_heuristic": latest.to_heuristic if latest else None,
        }

    # --- validation

    def _validate_when_due(self) -> None:
        """Validate beside acting and learning; in a synchronous run, in turn with them."""
        if self.validator is None:
            return
        if self._config.sync:
            share = share_done(self._config, self.position)
            due = int(share * _SYNC_VALIDATIONS) > int(self._validated_share * _SYNC_VALIDATIONS)
            self._validated_share = share
            if due:
                snapshot = self._snapshot()
                self._take(snapshot, self.validator.validate(self._store.newest().vector))
            return
        if self._pending is not None and self._pending[1].done():
            snapshot, future = self._pending
            self._pending = None
            self._take(snapshot, future.result())
        since_s = time.perf_counter() - self._validated_at
        if self._pending is None and since_s >= self._config.validate_every_s:
            self._validated_at = time.perf_counter()
            snapshot = self._snapshot()
            vector = self._store.newest().vector
            validate = self.validator.validate
            future = self._in_background.submit(validate, vector, self._abandon.is_set)
            self._pending = snapshot, future

    def _take(
        self, snapshot: _Snapshot, result: Validation | None, *, ended: str | None = None
    ) -> None:
        """Account for a validation, and keep what was validated if it is the best so far.

        `ended`: why the run ended, if that is what it was validated for.
        """
        if result is None:
            return
        self._latest, self._validated_step = result, snapshot.step
        position = validated(self.position, result.ratio)
        # A synchronous run that was interrupted goes on as if it had not been: without this one.
        interrupted = self._config.sync and ended in INTERRUPTED
        is_best = position.stale == 0 and not interrupted
        if is_best or ended is None:  # an extra validation uses up no patience
            self.position = position
        self._run.record(
            snapshot.step,
            {
                "validation_ratio": result.ratio,
                "validation_ratio_argmax": result.argmax,
                "validation_ratio_sampled": result.sampled,
                "validation_to_heuristic": result.to_heuristic,
                "validation_best_ratio": self.position.best_ratio,
                "validation_s": result.seconds,
            },
        )
        if is_best:
            self.save(snapshot, best=True)

    def _finish(self, reason: str) -> None:
        """Leave a checkpoint, then validate it if that takes no longer than one may wait."""
        self._abandon.set()
        self._exchange.close()  # the actors need not go on
        if self._pending is not None:
            validating, future = self._pending
            self._pending = None
            self._take(validating, future.result())  # None if it gave up
        snapshot = self._snapshot()
        self.save(snapshot)
        learned = snapshot.step > self._before.updates
        if self.validator is not None and learned and self._validated_step != snapshot.step:
            deadline = time.perf_counter() + _LAST_VALIDATION_S
            self._take(
                snapshot,
                self.validator.validate(
                    self._store.newest().vector, lambda: time.perf_counter() > deadline
                ),
                ended=reason,
            )

    # --- checkpoints

    def _snapshot(self) -> _Snapshot:
        """Everything that a resumed run goes on from."""
        tensors: dict[str, Any] = self._learner.state()
        if self._config.sync:
            for actor in self._actors:
                for name, array in actor.state().items():
                    tensors[f"actor-{actor.index}/{name}"] = array
        return _Snapshot(self.position.updates, tensors)

    def save(self, snapshot: _Snapshot, *, best: bool = False) -> None:
        """Write a checkpoint."""
        config, position = self._config, self.position
        metadata = {
            "messages": config.messages,
            "layout": fingerprint(config.messages),
            "workload": config.workload,
            "part": config.part,
            "executors": config.executors,
            "move_delay_s": config.move_delay_s,
            "reconsider": config.reconsider,
            "work_conserving": config.work_conserving,
            "jobs": config.jobs,
            "interarrival_s": config.interarrival_s,
            "objective": config.objective,
            "weights": config.weights,
            "seed": config.seed,
            "decisions": snapshot.step * config.environments * config.steps,
            "elapsed_s": position.elapsed_s,
            "best_ratio": position.best_ratio,
            "stale": position.stale,
            "generation": self._generation,
        }
        self._run.save_checkpoint(snapshot.step, snapshot.tensors, metadata, best=best)
        if not best:
            self._saved_at = time.perf_counter()
