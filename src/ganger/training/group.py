"""Learners that learn as one: what they add up and tell each other, step by step.

`Alone` is a group of one. `Together` are L processes (torch.distributed: gloo between CPUs, NCCL
between GPUs), each with its own share of every batch.
"""

import os
import secrets
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ganger.errors import GangerError

_TCP_STORE: Any = dist.TCPStore  # type: ignore[attr-defined]
SILENT_S = 120.0
"""A learner that says nothing for so long counts as dead."""


class GroupError(GangerError):
    """Another learner of the group died, or is silent."""


class Group(Protocol):
    """The learners of a run. All call the same methods in the same order."""

    rank: int
    size: int

    def add_up(self, array: NDArray[Any]) -> None:
        """Replace a float32 or float64 array by its sum over all learners, in place.

        Raises:
            GroupError: if one of them is gone.
        """

    def largest(self, array: NDArray[Any]) -> None:
        """Likewise by the largest of each entry."""

    def tell(self, array: NDArray[Any]) -> None:
        """Likewise by the first learner's."""


class Alone(Group):
    """One learner: nothing to add, nobody to tell."""

    rank, size = 0, 1

    def add_up(self, array: NDArray[Any]) -> None:
        """It is the sum."""

    def largest(self, array: NDArray[Any]) -> None:
        """It is the largest."""

    def tell(self, array: NDArray[Any]) -> None:
        """It is the first's."""


class Together(Group):
    """One of several processes, each with a learner."""

    def __init__(self, store: Any, rank: int, size: int, device: str = "cpu") -> None:
        """Meet the others at `store`; returns when all are there.

        Raises:
            GroupError: if one of them does not come.
        """
        self.rank, self.size = rank, size
        self._device = device
        try:
            dist.init_process_group(
                "nccl" if device == "cuda" else "gloo",
                store=store,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=SILENT_S),
            )
        except RuntimeError as error:
            raise GroupError(f"not all of {size} learners came: {_first_line(error)}") from None

    def add_up(self, array: NDArray[Any]) -> None:
        """The sum over all learners, the same to the bit for each."""
        self._exchange(array, lambda tensor: dist.all_reduce(tensor))

    def largest(self, array: NDArray[Any]) -> None:
        """The largest of each entry."""
        self._exchange(array, lambda tensor: dist.all_reduce(tensor, dist.ReduceOp.MAX))

    def tell(self, array: NDArray[Any]) -> None:
        """What the first learner has."""
        self._exchange(array, lambda tensor: dist.broadcast(tensor, 0))

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _exchange(self, array: NDArray[Any], collective: Any) -> None:
        mine = torch.from_numpy(array)
        tensor = mine.to(self._device)  # the same memory where that is the CPU
        try:
            collective(tensor)
        except RuntimeError as error:  # torch has no narrower one for a connection that broke
            raise GroupError(f"a learner is gone: {_first_line(error)}") from None
        if tensor is not mine:
            mine.copy_(tensor)


def meeting_place(directory: Path | None, host: str, size: int) -> tuple[Any, str]:
    """Where the learners of a group find each other, opened by the first one, and its address.

    A file of the directory, for learners on one machine; a port of the host without one.
    """
    if directory is not None:
        path = directory / secrets.token_hex(8)
        return dist.FileStore(str(path), size), str(path)  # type: ignore[attr-defined]
    store = _TCP_STORE(host, 0, size, is_master=True, wait_for_workers=False)
    return store, f"{host}:{store.port}"


def meet(address: str, size: int) -> Any:
    """The same place as the other learners see it.

    Raises:
        GroupError: if nobody is there.
    """
    if os.path.isabs(address):
        return dist.FileStore(address, size)  # type: ignore[attr-defined]
    host, _, port = address.rpartition(":")
    try:
        return _TCP_STORE(
            host,
            int(port),
            size,
            is_master=False,
            timeout=timedelta(seconds=SILENT_S),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        raise GroupError(f"no learner at {address}: {_first_line(error)}") from None


def stay_on_this_machine() -> None:
    """Let gloo listen on the loopback interface only, unless the user chose one."""
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def agreed(group: Group, vector: NDArray[np.float32]) -> bool:
    """Whether all learners have the same parameters, to the bit."""
    words = vector.view(np.uint32)
    own = np.array([words.sum(dtype=np.uint64) % 2**31, np.bitwise_xor.reduce(words) % 2**31])
    both = np.concatenate([own, -own.astype(np.float64)]).astype(np.float64)
    group.largest(both)
    return bool((both[:2] == -both[2:]).all())


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
