"""Training: actors that only act, one learner that only learns, and nobody waits for anybody.

The loop knows its source of trajectories and its publisher only by their protocols.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch

from ganger.errors import CheckpointError, ConfigError, TrainingError
from ganger.policy.checkpoint import Checkpoint, fingerprint, read_checkpoint, read_policy
from ganger.training.actor import ActedTrajectory, Actor, run_actor
from ganger.training.cells import measure_cells
from ganger.training.config import TrainConfig
from ganger.training.exchange import Header, Parameters, Trajectory
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue
from ganger.training.learner import Learner, NonFiniteError, keep_freed_memory
from ganger.training.objective import training_table
from ganger.training.run_directory import RunDirectory
from ganger.training.validation import Validation, Validator
from ganger.workload import load_source

_RECENT = 32  # episodes whose JCT is averaged for the progress
_LOOK_UP_S = 0.2  # how often a waiting learner looks whether it should stop
_LAST_VALIDATION_S = 4.0  # a run that is to end takes no longer to judge what it leaves
# Limits may change when a run is resumed; every other setting makes it another run.
LIMITS = ("minutes", "decisions", "updates", "target_ratio", "patience", "validate_every_s")

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
    resume: bool = False,
    init: Path | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Train a policy and leave it in a run directory.

    Args:
        config: the settings.
        run_path: a new directory; with `resume`, that of a run.
        resume: go on from the run's newest intact checkpoint. Limits may differ from the run's.
        init: a checkpoint, or a run's directory, whose policy to start from.
        progress: called with the metrics of every update.
        stop: set it to end the run cleanly, with a checkpoint.

    Raises:
        ConfigError: if a resumed run's settings differ.
        CheckpointError: if there is nothing intact to resume or to start from.
        TrainingError: if an actor died or a loss was not finite; what is on disk stays usable.
    """
    stop = stop or threading.Event()
    torch.set_num_threads(1)  # the other cores act
    keep_freed_memory()
    source = load_source(config.workload)
    table = training_table(config, source)
    cells = measure_cells(config, source)
    learner = Learner(config, cells)
    counters = Counters()
    checkpoint = None
    if init is not None:
        learner.start_from(start_tensors(init, messages=config.messages))
    if resume:
        run, checkpoint = resumed(config, run_path)
        learner.restore(checkpoint.tensors)
        counters = msgspec.convert(checkpoint.metadata["counters"], Counters)
        counters = msgspec.structs.replace(counters, resumed=counters.resumed + 1)
    else:
        run = RunDirectory.create(run_path, config=config, seed=config.seed)
    # A resumed actor's clusters are new ones, except in a synchronous run, which restores them.
    generation = 0 if config.sync else counters.resumed
    actors = [Actor(config, table, index, generation) for index in range(config.actors)]
    if config.sync and checkpoint is not None:
        for actor in actors:
            actor.restore(checkpoint.tensors[f"actor.{actor.index}"])
    store = ParameterStore(learner.policy.vector(), version=counters.updates)
    # One trajectory of each actor may wait: the learner always has work, and lag stays near one.
    queue = TrajectoryQueue(config.actors, store)
    threads = [
        threading.Thread(target=run_actor, args=(actor, store, queue), name=f"actor-{actor.index}")
        for actor in actors
    ]
    loop = _Loop(config, run, learner, store, queue, actors, counters)
    try:
        warm_up(config, actors[0], learner)
        validator = Validator(config, source)
        if not config.sync:
            for thread in threads:
                thread.start()
        reason = loop.run_until(stop, validator, progress)
    except NonFiniteError as error:
        np.savez(run.path / "failed_batch.npz", **error.tensors)  # type: ignore[arg-type]
        run.stop(f"failed: {error}", step=loop.counters.updates)
        raise
    except TrainingError as error:
        run.stop(f"failed: {error}", step=loop.counters.updates)
        raise
    finally:
        queue.close()
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        loop.close()
        learner.close()
        run.close()
    return Outcome(reason, loop.counters.updates, loop.counters.decisions, run.path)


def resumed(config: TrainConfig, path: Path) -> tuple[RunDirectory, Checkpoint]:
    """A run to go on with under these settings, and the checkpoint to go on from."""
    before = RunDirectory.open(path).config(TrainConfig)
    for name in config.__struct_fields__:
        if name not in LIMITS and getattr(config, name) != getattr(before, name):
            raise ConfigError(
                f"{path}: was trained with {name} {getattr(before, name)}, not "
                f"{getattr(config, name)}; to go on with a policy under other settings, start a "
                "new run from it with --init"
            )
    run, checkpoint = RunDirectory.resume(path)
    if "counters" not in checkpoint.metadata:
        raise CheckpointError(f"{checkpoint.path}: was written by an older version; use --init")
    if config != before:
        run.change_config(config)
    return run, checkpoint


def start_tensors(path: Path, *, messages: bool) -> dict[str, Any]:
    """The policy of a checkpoint or run, with its critic where the file holds one."""
    policy = read_policy(path)
    if policy.messages != messages:
        with_or_not = "with" if policy.messages else "without"
        raise CheckpointError(f"{path}: its policy is {with_or_not} messages; set messages alike")
    return read_checkpoint(policy.path).tensors | {"policy": policy.vector}


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


def _acted(trajectories: list[Trajectory]) -> list[ActedTrajectory]:
    return [trajectory.payload for trajectory in trajectories]  # type: ignore[misc]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is: what a checkpoint says beside the arrays."""

    updates: int = 0
    decisions: int = 0
    elapsed_s: float = 0.0
    resumed: int = 0
    """How often."""
    best_ratio: float | None = None
    """Of the validations so far."""
    since_best: int = 0
    """Validations since then."""


class _Loop:
    """The learning loop and what it counts."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunDirectory,
        learner: Learner,
        store: ParameterStore,
        queue: TrajectoryQueue,
        actors: list[Actor],
        counters: Counters,
    ) -> None:
        self.counters = counters
        self._config = config
        self._run = run
        self._learner = learner
        self._store = store
        self._queue = queue
        self._actors = actors
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=_RECENT)
        self._decisions_before = counters.decisions
        self._begin = self._saved_at = time.perf_counter()
        self._elapsed_before_s = counters.elapsed_s
        # Beside the learner, so that it never waits for a validation.
        self._judge = ThreadPoolExecutor(1, thread_name_prefix="validation")
        self._validating: Future[Validation] | None = None
        self._validated: Validation | None = None

    def close(self) -> None:
        """End its thread."""
        self._judge.shutdown()

    @property
    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + time.perf_counter() - self._begin

    def run_until(
        self, stop: threading.Event, validator: Validator, progress: Progress | None
    ) -> str:
        """Learn until a stop condition holds; returns which one."""
        self._begin = self._saved_at = time.perf_counter()
        while (reason := self._reason(stop)) is None:
            trajectories = self._collect(stop)
            if stop.is_set():
                continue
            metrics = self._learner.update(
                [acted.samples for acted in _acted(trajectories)], self._progress()
            )
            lags = [self.counters.updates - t.header.policy_version for t in trajectories]
            self._count(
                updates=self.counters.updates + 1,
                decisions=self.counters.decisions + self._config.environments * self._config.steps,
                elapsed_s=self._elapsed_s,
            )
            self._store.publish(self._learner.policy.vector(), self.counters.updates)
            self._account(metrics, trajectories, lags)
            self._run.record(self.counters.updates, metrics)
            if progress:
                progress(metrics)
            self._look_at_validation()
            due_s = self._config.validate_every_s
            if time.perf_counter() - self._saved_at > due_s and self._validating is None:
                self.save()
                if not self._config.sync:
                    self._start_validation(validator)
        self._finish(validator)
        self._run.stop(reason, step=self.counters.updates)
        return reason

    def _reason(self, stop: threading.Event) -> str | None:
        """Why the run should end now, or None."""
        config, counters = self._config, self.counters
        if stop.is_set():
            return "stopped"
        if config.decisions is not None and counters.decisions >= config.decisions:
            return "decisions"
        if config.updates is not None and counters.updates >= config.updates:
            return "updates"
        if self._elapsed_s >= config.minutes * 60:
            return "time"
        best = counters.best_ratio
        if config.target_ratio is not None and best is not None and best <= config.target_ratio:
            return "target"
        if config.patience is not None and counters.since_best >= config.patience:
            return "plateau"
        return None

    def _progress(self) -> float:
        """How much of the run is over, in [0, 1]: the limit that is nearest."""
        config, counters = self._config, self.counters
        shares = [0.0 if config.sync else self._elapsed_s / (config.minutes * 60)]
        if config.decisions is not None:
            shares.append(counters.decisions / config.decisions)
        if config.updates is not None:
            shares.append(counters.updates / config.updates)
        return min(max(shares), 1.0)

    def _count(self, **changes: Any) -> None:
        self.counters = msgspec.structs.replace(self.counters, **changes)

    def _collect(self, stop: threading.Event) -> list[Trajectory]:
        """One trajectory for each actor's share of the environments, in order of arrival."""
        if self._config.sync:
            parameters, updates = self._store.newest(), self.counters.updates
            return [
                Trajectory(
                    Header(actor.index, actor.generation, updates, parameters.version),
                    actor.act(parameters),
                )
                for actor in self._actors
            ]
        collected: list[Trajectory] = []
        while len(collected) < self._config.actors and not stop.is_set():
            wanted = self._config.actors - len(collected)
            collected += self._queue.get(wanted, timeout_s=_LOOK_UP_S)
        return collected

    # --- validation

    def _start_validation(self, validator: Validator) -> Future[Validation]:
        vector = self._learner.policy.vector()
        self._validating = self._judge.submit(validator.validate, vector, self.counters.updates)
        return self._validating

    def _look_at_validation(self) -> None:
        """Take in a validation that is ready: its checkpoint may be the best so far."""
        if self._validating is None or not self._validating.done():
            return
        validation, self._validating = self._validating.result(), None
        self._validated = validation
        best = self.counters.best_ratio
        if best is None or validation.ratio < best:
            self._run.mark_best(validation.step)
            self._count(best_ratio=validation.ratio, since_best=0)
        else:
            self._count(since_best=self.counters.since_best + 1)
        self._run.record(
            self.counters.updates,
            {
                "validated_step": validation.step,
                "validation_argmax": validation.argmax,
                "validation_sampled": validation.sampled,
                "validation_heuristic": validation.heuristic,
                "validation_s": validation.seconds,
            },
        )

    def _finish(self, validator: Validator) -> None:
        """Save, and judge what is saved if that is quick."""
        self.save()
        begin = time.perf_counter()
        if self._validating is not None:
            wait([self._validating], timeout=_LAST_VALIDATION_S)
            self._look_at_validation()
        took_s = self._validated.seconds if self._validated else 1.0
        left_s = _LAST_VALIDATION_S - (time.perf_counter() - begin)
        if self._validating is None and took_s < left_s and self.counters.updates:
            wait([self._start_validation(validator)], timeout=left_s)
            self._look_at_validation()
            self.save()  # with what the last validation counted

    def _account(
        self, metrics: dict[str, Any], trajectories: list[Trajectory], lags: list[int]
    ) -> None:
        acted = _acted(trajectories)
        counters = self.counters
        own_s = max(time.perf_counter() - self._begin, 1e-9)
        decisions = self._config.environments * self._config.steps
        waiting = self._queue.waiting()
        for one in acted:
            for outcome in one.outcomes:
                self._recent.append((outcome.mean_jct_s, outcome.fair_mean_jct_s, outcome.ratio))
        mine, fair, ratio = np.array(self._recent).reshape(-1, 3).T
        metrics |= {
            "updates": counters.updates,
            "elapsed_s": counters.elapsed_s,
            "decisions": counters.decisions,
            "decisions_per_s": (counters.decisions - self._decisions_before) / own_s,
            "acting_decisions_per_s": decisions / max(sum(one.seconds for one in acted), 1e-9),
            "learning_decisions_per_s": decisions / metrics["update_s"],
            "learner_idle_share": waiting.learner_s / own_s,
            "actor_idle_share": sum(waiting.actors_s.values()) / own_s / self._config.actors,
            "lag_mean": float(np.mean(lags)),
            "lag_max": max(lags),
            "queue_depth": self._queue.depth,
            "recent_jct_s": float(mine.mean()) if len(mine) else None,
            "recent_fair_jct_s": float(fair.mean()) if len(fair) else None,
            "recent_ratio": float(ratio.mean()) if len(ratio) else None,
            "validation_ratio": self._validated.ratio if self._validated else None,
            "best_ratio": counters.best_ratio,
        }

    def save(self) -> None:
        """Write a checkpoint."""
        config, counters = self._config, self.counters
        tensors: dict[str, Any] = self._learner.state()
        if config.sync:
            tensors |= {f"actor.{actor.index}": actor.state() for actor in self._actors}
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
            "decisions": counters.decisions,
            "seed": config.seed,
            "counters": msgspec.to_builtins(counters),
        }
        self._run.save_checkpoint(counters.updates, tensors, metadata)
        self._saved_at = time.perf_counter()
