"""A trajectory as one flat buffer and a small header, for exchanges that copy between processes."""

from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from ganger.policy.features import Rows
from ganger.training.acting import EPISODE, Decisions
from ganger.training.actor import ActedTrajectory, EpisodeOutcome
from ganger.training.exchange import Header, Trajectory
from ganger.training.samples import ActorTrajectory

_ALIGNMENT = 64
_POINTERS = {
    "stages": "stage_pointer",
    "stage_index": "stage_pointer",
    "stage_job": "stage_pointer",
    "stage_choice": "stage_pointer",
    "stage_demand": "stage_pointer",
    "jobs": "job_pointer",
    "job_own": "job_pointer",
    "edges": "edge_pointer",
}


class DamagedError(Exception):
    """A buffer is not what was sent."""


class PackedHeader(NamedTuple):
    """What the buffer is, and whether it is whole."""

    header: Header
    steps: int
    seconds: float
    arrays: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Name, dtype and shape of each array, in their order in the buffer."""
    checksum: int


def pack(header: Header, acted: ActedTrajectory) -> tuple[PackedHeader, NDArray[np.uint8]]:
    """Lay the arrays end to end, each on a 64-byte boundary, without the rows' spare room."""
    samples = acted.samples
    arrays: dict[str, NDArray[Any]] = {}
    for name in Rows.FIELDS:
        array = getattr(samples.rows, name)
        if name in _POINTERS:
            array = array[: getattr(samples.rows, _POINTERS[name])[-1]]
        arrays[f"rows.{name}"] = array
    for name in Decisions.FIELDS:
        if name not in ("episodes", "cursor"):  # the actor's own
            arrays[f"decisions.{name}"] = getattr(samples.decisions, name)
    arrays["levels"], arrays["cells"] = samples.levels, samples.cells
    arrays["outcomes"] = np.array(acted.outcomes, np.float64).reshape(-1, 4)
    buffer = np.zeros(sum(_padded(array.nbytes) for array in arrays.values()), np.uint8)
    at = 0
    for array in arrays.values():
        buffer[at : at + array.nbytes].view(array.dtype)[:] = array.reshape(-1)
        at += _padded(array.nbytes)
    described = tuple((name, array.dtype.str, array.shape) for name, array in arrays.items())
    checksum = xxhash.xxh3_64_intdigest(buffer.data)
    return PackedHeader(header, samples.steps, acted.seconds, described, checksum), buffer


def unpack(packed: PackedHeader, buffer: NDArray[np.uint8]) -> Trajectory:
    """The trajectory, its arrays as views of the buffer.

    Raises:
        DamagedError: if the buffer is not the one that was packed.
    """
    if xxhash.xxh3_64_intdigest(buffer.data) != packed.checksum:
        raise DamagedError(
            f"trajectory {packed.header.sequence} of actor {packed.header.actor} is damaged: its "
            "checksum differs"
        )
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for name, dtype, shape in packed.arrays:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        arrays[name] = buffer[at : at + size].view(dtype).reshape(shape)
        at += _padded(size)

    def part(prefix: str) -> dict[str, NDArray[Any]]:
        return {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        }

    decisions = Decisions(
        **part("decisions."), episodes=np.zeros(0, EPISODE), cursor=np.zeros(3, np.int64)
    )
    samples = ActorTrajectory(
        Rows(**part("rows.")), decisions, arrays["levels"], arrays["cells"], packed.steps
    )
    outcomes = [EpisodeOutcome(int(jobs), *rest) for jobs, *rest in arrays["outcomes"].tolist()]
    return Trajectory(packed.header, ActedTrajectory(samples, outcomes, packed.seconds))


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
