"""Whether the states that a policy meets are still like those that it was trained on.

A window of decisions is summed up by the mean of what the policy saw. Windows of its own workload
scatter around a centre; how far a window is from there, in units of that scatter (the Mahalanobis
distance), over the distance that at most 1 in 200 of its own windows exceeded, is its score: above
1 is an alarm.
"""

import os
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ganger.policy.features import JOB_FEATURES, JOB_WIDTH, POLICY_GLOBALS, Rows

WINDOW = 1024
"""Decisions."""
_RIDGE = 1e-4  # of a feature's variance: keeps features that never change from ringing on a trifle
_OWN_SHARE = 0.995  # of its own windows that stay below 1
_SPREAD = 0.02  # a feature that scatters less counts as if it scattered by this much

# Of the jobs in the system; those about the offer in hand jump between decisions and say little.
_OF_JOBS = tuple(
    index
    for index, text in enumerate(JOB_FEATURES)
    if text.split(":")[0] in ("unlaunched", "task", "work", "path", "parallelism", "age", "stages")
)


class Drift(msgspec.Struct, frozen=True):
    """What windows of a policy's own workload look like."""

    centre: list[float]
    inverse: list[list[float]]
    """Inverse of the windows' covariance."""
    limit: float
    """The distance that scores 1."""

    def scores(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far windows are from home, by their means [windows, features]; an alarm above 1."""
        return _distance(means, np.array(self.centre), np.array(self.inverse)) / self.limit


class _File(msgspec.Struct):
    step: int
    drift: Drift


def save_drift(run: Path, step: int, drift: Drift) -> None:
    """Keep the score of a run's policy beside it, for whoever lets it decide.

    Raises:
        OSError: it cannot be written.
    """
    part = run / "drift.json.part"
    part.write_bytes(msgspec.json.encode(_File(step, drift)))
    os.replace(part, run / "drift.json")


def saved_drift(run: Path, step: int) -> Drift | None:
    """What is kept of the policy at that step; None: nothing."""
    try:
        found = msgspec.json.decode((run / "drift.json").read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found.drift if found.step == step else None


class Watcher:
    """Scores what a policy sees, decision by decision."""

    def __init__(self, drift: Drift) -> None:
        self.score: float | None = None
        """Of the last whole window."""
        self._drift = drift
        self._sum: NDArray[np.float64] | None = None
        self._count = 0

    def see(self, rows: Rows) -> None:
        """One more decision."""
        seen = seen_of(rows)[0]
        self._sum = seen if self._sum is None else self._sum + seen
        self._count += 1
        if self._count == WINDOW:
            self.score = float(self._drift.scores((self._sum / WINDOW)[None, :])[0])
            self._sum, self._count = None, 0


def seen_of(rows: Rows) -> NDArray[np.float64]:
    """What is watched of each decision, [decisions, features]; it has at least one job."""
    globals_ = rows.globals[:, :POLICY_GLOBALS].astype(np.float64)
    used = int(rows.job_pointer[-1])
    jobs = rows.jobs[:used, :JOB_WIDTH][:, _OF_JOBS].astype(np.float64)
    counts = np.diff(rows.job_pointer)
    of_jobs = np.add.reduceat(jobs, rows.job_pointer[:-1], axis=0) / counts[:, None]
    return np.concatenate([globals_, of_jobs], axis=1)


def windows(seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means [windows, features] of consecutive decisions [clusters, decisions, features]."""
    clusters, decisions, width = seen.shape
    count = decisions // WINDOW
    cut = seen[:, : count * WINDOW].reshape(clusters * count, WINDOW, width)
    means: NDArray[np.float64] = cut.mean(axis=1)
    return means


def calibrate(own: NDArray[np.float64]) -> Drift:
    """The drift score that the windows [windows, features] of a policy's own workload give."""
    # The scatter is measured on one half: windows must not be near for having been counted in.
    fit, held_out = own[::2], own[1::2]
    centre = fit.mean(axis=0)
    covariance = np.cov(fit, rowvar=False).astype(np.float64)
    covariance += np.diag(_RIDGE * np.diag(covariance) + _SPREAD**2)
    inverse = np.linalg.inv(covariance).astype(np.float64)
    limit = float(np.quantile(_distance(held_out, centre, inverse), _OWN_SHARE))
    return Drift(centre.tolist(), inverse.tolist(), max(limit, 1e-6))


def _distance(
    means: NDArray[np.float64], centre: NDArray[np.float64], inverse: NDArray[np.float64]
) -> NDArray[np.float64]:
    away = means - centre
    squares = np.einsum("wi,ij,wj->w", away, inverse, away)
    distance: NDArray[np.float64] = np.sqrt(np.maximum(squares, 0))
    return distance
