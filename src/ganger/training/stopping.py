"""When a training run ends: the first limit that is met, whichever it is."""

from typing import NamedTuple

from ganger.training.config import TrainConfig

STOPPED = "stopped"
"""The reason where somebody asked for it."""
INTERRUPTED = (STOPPED, "time")
"""Reasons that depend on the clock: where they end a synchronous run is chance."""


class Position(NamedTuple):
    """How far a run is, over all its sessions if it was resumed."""

    elapsed_s: float = 0.0
    decisions: int = 0
    updates: int = 0
    best_ratio: float | None = None
    """The lowest validation ratio so far; None before the first validation."""
    stale: int = 0
    """Validations in a row without a new best."""


def share_done(config: TrainConfig, position: Position) -> float:
    """The share of the run that is behind it, in [0, 1]: what places the learner's schedules.

    A synchronous run does not look at the clock, so that it repeats.
    """
    shares = [0.0 if config.sync else position.elapsed_s / config.time_limit_s]
    if config.decisions is not None:
        shares.append(position.decisions / config.decisions)
    if config.updates is not None:
        shares.append(position.updates / config.updates)
    return min(max(shares), 1.0)


def reason_to_stop(config: TrainConfig, position: Position) -> str | None:
    """Which limit is met: decisions, updates, target, plateau or time; None: go on."""
    ratio, target = position.best_ratio, config.target_ratio
    if config.decisions is not None and position.decisions >= config.decisions:
        return "decisions"
    if config.updates is not None and position.updates >= config.updates:
        return "updates"
    if target is not None and ratio is not None and ratio <= target:
        return "target"
    if config.patience is not None and position.stale >= config.patience:
        return "plateau"
    if position.elapsed_s >= config.time_limit_s:
        return "time"
    return None


def validated(position: Position, ratio: float) -> Position:
    """The position after a validation gave this ratio."""
    if position.best_ratio is None or ratio < position.best_ratio:
        return position._replace(best_ratio=ratio, stale=0)
    return position._replace(stale=position.stale + 1)
