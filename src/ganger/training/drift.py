"""Learn what a trained policy's own workload looks like, to notice later when it changes."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.policy.drift import WINDOW, Drift, calibrate, seen_of, windows
from ganger.simulator.table import Table
from ganger.training.actor import Actor
from ganger.training.config import TrainConfig
from ganger.training.exchange import Parameters

_CLUSTERS = 48
_WINDOWS = 3  # of each
_GENERATION = 1 << 20  # random streams of their own: training is at its first few generations


def windows_seen(
    config: TrainConfig, table: Table, vector: NDArray[np.float32], *, stream: int = 0
) -> NDArray[np.float64]:
    """Windows [windows, features] that the policy meets in clusters of its training.

    Args:
        stream: other clusters for another number.
    """
    clusters = -(-_CLUSTERS // len(config.cells)) * len(config.cells)
    settings = msgspec.structs.replace(
        config, environments=clusters, actors=1, steps=WINDOW - 1, messages=config.messages
    )
    actor = Actor(settings, table, 0, generation=_GENERATION + stream)
    parameters = Parameters(vector, 0)
    seen = []
    for _ in range(_WINDOWS):
        rows = actor.act(parameters).samples.rows
        seen.append(seen_of(rows).reshape(clusters, WINDOW, -1))
    # The first window of a cluster that has just been started is unlike all later ones.
    return windows(np.concatenate(seen[1:], axis=1))


def calibrated(config: TrainConfig, table: Table, vector: NDArray[np.float32]) -> Drift:
    """The drift score of a policy on what it was trained on; takes some seconds."""
    own = np.concatenate([windows_seen(config, table, vector, stream=s) for s in range(2)])
    return calibrate(own)
