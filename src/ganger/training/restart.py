"""Where a run begins other than at nothing: at its own checkpoint, or at another run's policy."""

from pathlib import Path
from typing import Any

import msgspec

from ganger.errors import CheckpointError, ConfigError
from ganger.policy.checkpoint import Checkpoint, fingerprint, read_checkpoint, read_policy
from ganger.policy.layout import critic_size
from ganger.training.actor import Actor
from ganger.training.config import LIMITS, PLACES, TrainConfig
from ganger.training.learner import Learner
from ganger.training.stopping import Position


def refuse_changed(config: TrainConfig, before: TrainConfig, path: Path) -> None:
    """All but the limits of a resumed run must be as they were."""
    new, old = (msgspec.to_builtins(settings) for settings in (config, before))
    new |= {f"learning.{name}": value for name, value in new.pop("learning").items()}
    old |= {f"learning.{name}": value for name, value in old.pop("learning").items()}
    changed = [
        f"{name} is {value}, was {old[name]}"
        for name, value in new.items()
        if value != old[name] and name not in LIMITS + PLACES
    ]
    if changed:
        raise ConfigError(
            f"{path}: cannot be resumed with other settings ({'; '.join(changed)}); "
            f"only {', '.join(LIMITS + PLACES)} may change"
        )


def start_from(path: Path, config: TrainConfig) -> dict[str, Any]:
    """The policy to start from, and the critic where the checkpoint has one that fits."""
    saved = read_policy(path)
    if saved.messages != config.messages:
        has, wanted = ("with", "without") if saved.messages else ("without", "with")
        raise ConfigError(
            f"{saved.path}: its policy is {has} message passing, this run {wanted}; see messages"
        )
    found: dict[str, Any] = {"policy": saved.vector}
    tensors = read_checkpoint(saved.path).tensors
    if "critic" in tensors and "critic_scale" in tensors:
        shapes = tensors["critic"].shape, tensors["critic_scale"].shape
        if shapes != ((critic_size(),), (2,)):
            raise CheckpointError(
                f"{saved.path}: tensor 'critic' is {list(shapes[0])}; expected [{critic_size()}]"
            )
        found |= {name: tensors[name] for name in ("critic", "critic_scale")}
    return found


def restored(
    config: TrainConfig, learner: Learner, checkpoint: Checkpoint, best: Checkpoint
) -> tuple[Position, int]:
    """Restore the learner; where the run was, and how often its actors were started anew."""
    about = checkpoint.metadata
    try:
        if about["layout"] != fingerprint(config.messages):
            raise CheckpointError(
                "its policy sees other features or has another network than this version of Ganger"
            )
        learner.restore(checkpoint.tensors)
        ratio, stale, best_ratio = about["best_ratio"], about["stale"], best.metadata["best_ratio"]
        # The best one may have been found after this checkpoint was written.
        if best_ratio is not None and (ratio is None or best_ratio < ratio):
            ratio, stale = best_ratio, 0
        position = Position(
            elapsed_s=float(about["elapsed_s"]),
            decisions=int(about["decisions"]),
            updates=checkpoint.step,
            best_ratio=ratio,
            stale=int(stale),
        )
        return position, int(about["generation"]) + (not config.sync)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: cannot be resumed: {error}") from None
    except KeyError as error:
        raise CheckpointError(f"{checkpoint.path}: cannot be resumed: it has no {error}") from None


def clusters_of(actor: Actor, checkpoint: Checkpoint) -> dict[str, Any]:
    """An actor's part of a synchronous run's checkpoint."""
    prefix = f"actor-{actor.index}/"
    return {
        name.removeprefix(prefix): array
        for name, array in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
