"""Gives everything back when the driver dies without having done so.

A process of its own, which the driver tells over a pipe what there would be to give back; when the
pipe closes before the driver said goodbye, it does that. It holds the driver's lock meanwhile, so
that no new driver begins in between.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import msgspec

from ganger.errors import ConfigError, GangerError
from ganger.serving.slurm.acting import Drives, give_back
from ganger.serving.slurm.client import Client

_GOODBYE = b"goodbye\n"
_WAITS_S = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)
_TRIES = 3000  # a day


def lock(partition: str) -> socket.socket:
    """Be the only one who drives a partition from this machine, until this is closed.

    Raises:
        ConfigError: somebody else is.
    """
    found = socket.socket(socket.AF_UNIX)
    where = f"{os.environ.get('SLURM_CONF', '')}/{partition}"[-60:]
    try:
        found.bind(f"\0ganger-slurm-{os.getuid()}-{where}")
    except OSError:
        found.close()
        raise ConfigError(
            f"partition {partition!r} is driven already, or the watchdog of a driver that died is "
            f"giving its jobs back"
        ) from None
    return found


class Watchdog:
    """The driver's side."""

    def __init__(self, partition: str, timeout_s: float, lock: socket.socket) -> None:
        self._partition, self._timeout_s, self._lock = partition, timeout_s, lock
        self._told = b""
        self.starts = 0
        self._start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, drives: Drives) -> None:
        """What there is to give back from now on."""
        line = msgspec.json.encode(drives) + b"\n"
        if self._process.poll() is not None:
            self._close()
            self._start()
        elif line == self._told:
            return
        with contextlib.suppress(BrokenPipeError):  # it is started again the next time
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
            self._told = line

    def goodbye(self) -> None:
        """All has been given back."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(_GOODBYE)
            self._process.stdin.flush()
        self._close()
        self._process.wait()

    def abandon(self) -> None:
        """Leave what is to be given back to it."""
        self._close()

    def _start(self) -> None:
        self.starts += 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._partition, str(self._timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(self._lock.fileno(),),
        )

    def _close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()


def main() -> None:
    """Wait for the end of the driver."""
    # What ends the driver must not end this.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    partition, timeout_s = sys.argv[1], float(sys.argv[2])
    drives = Drives(partition)
    for line in sys.stdin.buffer:
        if line == _GOODBYE:
            return
        with contextlib.suppress(msgspec.DecodeError):  # torn off in the middle
            drives = msgspec.json.decode(line, type=Drives)

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"ganger: the driver of {partition} has gone: {text}\n")
            sys.stderr.flush()

    slurm = Client(partition, timeout_s)
    for number in range(_TRIES):
        try:
            give_back(slurm, drives, say)
            return
        except GangerError as error:
            if number in (0, 10, 100):
                say(f"{error}; trying again")
        time.sleep(_WAITS_S[min(number, len(_WAITS_S) - 1)])


if __name__ == "__main__":
    main()
