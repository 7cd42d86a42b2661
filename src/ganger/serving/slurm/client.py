"""Slurm's own commands, each under a timeout."""

import os
import re
import subprocess
from collections.abc import Sequence
from typing import Protocol

from ganger.errors import ConfigError, GangerError
from ganger.serving.slurm.wire import Node, Row, WireError, read_jobs, read_nodes

# Of an array some of whose tasks have ended, a change of the others exits with 1 and says this.
_EACH = re.compile(r"\d+(_\S+)?: (No error|Job has already finished|.*already completing.*)")


class SlurmError(GangerError):
    """A command failed; it may succeed when it is tried again."""


class Slurm(Protocol):
    """What a driver asks of Slurm."""

    def jobs(self) -> list[Row]:
        """All jobs of the partition, and those that have ended of late."""

    def nodes(self) -> list[Node]:
        """All nodes."""

    def scontrol(self, *words: str) -> None:
        """Change something."""


def check_partition(slurm: Slurm, partition: str) -> None:
    """Whether a partition is there.

    Raises:
        ConfigError: it is not, or Slurm's commands are not.
        SlurmError: nobody answers.
    """
    there = {one for node in slurm.nodes() for one in node.partitions}
    if partition not in there:
        raise ConfigError(
            f"there is no partition {partition!r} with nodes; "
            f"there are {', '.join(sorted(there)) or 'none'}"
        )


class Client:
    """The commands that are installed here."""

    def __init__(self, partition: str, timeout_s: float = 10.0) -> None:
        self._partition = partition
        self._timeout_s = timeout_s
        # Slurm 22.05 has no `scontrol --json`, and since 23.02 `sinfo --json` lists no nodes.
        self._nodes: tuple[str, ...] | None = None
        # Without it the task numbers of large arrays are cut off.
        self._environment = os.environ | {"SLURM_BITSTR_LEN": "0", "LC_ALL": "C"}

    def jobs(self) -> list[Row]:
        """All jobs of the partition, and those that have ended of late.

        Raises:
            SlurmError: it does not answer.
            ConfigError: there is no squeue here that can print JSON.
        """
        command = ("squeue", "--json", "--states=all", f"--partition={self._partition}")
        try:
            return read_jobs(self._run(command))
        except WireError as error:
            raise SlurmError(f"squeue: {error}; is slurmctld up?") from None

    def nodes(self) -> list[Node]:
        """All nodes.

        Raises:
            SlurmError: it does not answer.
            ConfigError: there is no sinfo here that can print JSON.
        """
        try:
            if self._nodes is None:
                try:
                    nodes = read_nodes(self._run(("scontrol", "show", "nodes", "--json")))
                    self._nodes = ("scontrol", "show", "nodes", "--json")
                    return nodes
                except ConfigError:
                    self._run(("sinfo", "--version"))  # or say that it is not installed
                    self._nodes = ("sinfo", "--json")
            return read_nodes(self._run(self._nodes))
        except WireError as error:
            raise SlurmError(f"sinfo: {error}; is slurmctld up?") from None

    def scontrol(self, *words: str) -> None:
        """Change something.

        Raises:
            SlurmError: it refuses, or does not answer.
        """
        self._run(("scontrol", *words))

    @staticmethod
    def _done(stderr: str) -> bool:
        """Whether all was changed that has not ended."""
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        return any("No error" in line for line in lines) and all(map(_EACH.fullmatch, lines))

    def _run(self, command: Sequence[str]) -> bytes:
        shown = " ".join(command)
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
                start_new_session=True,  # Ctrl-C is for the driver: it ends in order
            )
        except FileNotFoundError:
            raise ConfigError(
                f"{command[0]} is not installed here: a driver of Slurm runs where its commands do"
            ) from None
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{shown}: no answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise SlurmError(f"{shown}: cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            stderr = done.stderr.decode(errors="replace")
            if self._done(stderr):
                return done.stdout
            said = " ".join(stderr.split())
            if "--json" in command and ("unrecognized option" in said or "invalid option" in said):
                raise ConfigError(
                    f"{shown}: this Slurm prints no JSON; version 21.08 or newer is needed ({said})"
                )
            raise SlurmError(f"{shown}: {said or f'exit status {done.returncode}'}")
        return done.stdout
