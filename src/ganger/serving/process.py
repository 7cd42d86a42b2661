"""A scheduler in a process of its own: what it does, or fails to do, cannot stop who asks.

Both ends talk over a socket pair: four bytes of length, then a msgpack message. Nothing that is
received is executed, and a process whose asker has gone ends by itself.
"""

import contextlib
import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from ganger.errors import GangerError, SchedulerError
from ganger.simulator.observation import Decision, Observation

_LENGTH = struct.Struct("<I")
_LARGEST = 1 << 28
_PATIENCE_S = 10.0
"""A process that owes an answer for so long hangs: it is replaced."""
_START_S = 120.0
"""To load, and to compile where nothing is cached yet."""
_BACK_OFF_S = (0.0, 1.0, 5.0, 30.0)
"""Before the first, second, ... start in a row that came to nothing; the last one repeats."""


class Setting(msgspec.Struct, frozen=True):
    """What decides."""

    scheduler: str
    """As `ganger.load_scheduler` takes it: a heuristic, `general` or the path of a run."""
    sample: bool = False
    plan: bool = False

    def __str__(self) -> str:
        how = "sampled" if self.sample else "plan" if self.plan else ""
        return f"{self.scheduler} ({how})" if how else self.scheduler


class _Ask(msgspec.Struct, frozen=True, array_like=True):
    number: int
    observation: Observation


class _Reply(msgspec.Struct, frozen=True, array_like=True):
    number: int  # of the question; 0: ready
    decisions: tuple[Decision, ...] = ()
    probabilities: tuple[float, ...] = ()
    drift: float | None = None
    error: str | None = None


class NoAnswerError(GangerError):
    """A process did not answer; `reason` is one of a few words, for counting."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Reply(msgspec.Struct, frozen=True):
    """What a process answered to a round."""

    decisions: tuple[Decision, ...]
    probabilities: tuple[float, ...]
    """Of each decision, under a policy; empty for other schedulers."""
    drift: float | None
    """How unlike its training the states of the last window were; above 1 is an alarm."""


class SchedulerProcess:
    """Asks a scheduler that runs elsewhere, and replaces it when it dies or hangs.

    Not safe to ask from several threads at once.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        command: tuple[str, ...] = (sys.executable, "-m", "ganger.serving.process"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.setting = setting
        self.starts = 0
        self._command = command
        self._clock = clock
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ready = False
        self._trouble = "it has not started"
        self._in_vain = 0
        self._started = self._next_start = -1e9
        self._owes_since: float | None = None
        self._start()

    @property
    def ready(self) -> bool:
        """Whether it waits for questions."""
        if not self._ready and self._process is not None:
            with contextlib.suppress(NoAnswerError):
                self._await_ready(0.0)
        return self._ready

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def wait(self, timeout_s: float = _START_S) -> None:
        """Wait until it is ready.

        Raises:
            SchedulerError: it ended, or takes too long; with what it said.
        """
        try:
            self._await_ready(timeout_s)
        except NoAnswerError as failure:
            raise SchedulerError(f"{self.setting}: {failure}") from None

    def ask(self, observation: Observation, deadline_s: float) -> Reply:
        """Have it decide a round.

        Args:
            observation: at the beginning of the round.
            deadline_s: from now, by the clock.

        Raises:
            NoAnswerError: there is no answer, and why. It may be asked again at once.
        """
        end = self._clock() + deadline_s
        self._look_after()
        self._await_ready(0.0)
        try:
            if self._owes_since is not None:
                self._receive(end)  # to the question before, which is too old by now
                self._owes_since = None
            number = next(self._numbers)
            self._send(_Ask(number, observation), end)
            self._owes_since = self._clock()
            reply = self._receive(end)
            if reply.number != number:
                raise OSError(f"it answered {reply.number} to {number}")
        except TimeoutError:
            raise NoAnswerError("late", f"no answer within {1e3 * deadline_s:g} ms") from None
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self._bury(str(error) or "it ended")
            raise NoAnswerError("died", self._trouble) from None
        self._owes_since = None
        self._in_vain = 0
        if reply.error is not None:
            raise NoAnswerError("error", reply.error)
        return Reply(reply.decisions, reply.probabilities, reply.drift)

    def close(self) -> None:
        """End the process."""
        self._bury("it was closed")
        self._next_start = float("inf")

    # --- its life

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._buffer = bytearray()
        self._started = self._clock()
        self.starts += 1
        try:
            self._process = subprocess.Popen(
                (*self._command, str(theirs.fileno()), msgspec.json.encode(self.setting).decode()),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_number(sys.stderr) else subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the asker, which ends it in good order
            )
        except OSError as error:
            ours.close()
            self._next_start = self._clock() + _BACK_OFF_S[-1]
            self._trouble = f"it cannot be started: {error}"
            return
        finally:
            theirs.close()
        self._socket = ours
        self._trouble = "it is starting"

    def _look_after(self) -> None:
        """Bury what died or hangs, start what is due."""
        now = self._clock()
        if self._process is not None:
            if self._process.poll() is not None:
                self._bury(f"it ended with code {self._process.returncode}")
                raise NoAnswerError("died", self._trouble)
            if self._owes_since is not None and now - self._owes_since > _PATIENCE_S:
                self._bury(f"it did not answer for {_PATIENCE_S:g} s")
            elif not self._ready and now - self._started > _START_S:
                self._bury(f"it was not ready after {_START_S:g} s")
        if self._process is None and now >= self._next_start:
            self._start()

    def _bury(self, trouble: str) -> None:
        self._trouble = trouble
        self._ready, self._owes_since = False, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            delay_s = _BACK_OFF_S[min(self._in_vain, len(_BACK_OFF_S) - 1)]
            self._next_start = self._clock() + delay_s
            self._in_vain += 1

    def _await_ready(self, timeout_s: float) -> None:
        if self._ready:
            return
        end = self._clock() + timeout_s
        if self._process is None:
            raise NoAnswerError("starting", self._trouble)
        try:
            reply = self._receive(end)
        except TimeoutError:
            raise NoAnswerError("starting", self._trouble) from None
        except (OSError, EOFError, msgspec.MsgspecError):
            self._bury("it ended while it started")
            raise NoAnswerError("died", self._trouble) from None
        if reply.error is not None:
            self._bury(reply.error)
            raise NoAnswerError("died", reply.error)
        self._ready = True

    # --- messages

    def _send(self, message: _Ask, end: float) -> None:
        assert self._socket is not None
        data = memoryview(_framed(message))
        sent = 0
        try:
            while sent < len(data):
                self._socket.settimeout(max(end - self._clock(), 1e-4))
                sent += self._socket.send(data[sent:])
        except TimeoutError:
            if sent > 0:  # the rest would be taken for the next message
                self._bury("it did not take the question")
            raise

    def _receive(self, end: float) -> _Reply:
        assert self._socket is not None
        while True:
            if len(self._buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer)
                if len(self._buffer) >= _LENGTH.size + length:
                    message = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
                    del self._buffer[: _LENGTH.size + length]
                    return msgspec.msgpack.decode(message, type=_Reply)
            self._socket.settimeout(max(end - self._clock(), 1e-4))
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._buffer += data


def _has_number(stream: object) -> bool:
    try:
        stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _framed(message: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


# ---------------------------------------------------------------- the other end


def _serve(connection: socket.socket, setting: Setting) -> None:
    """Load a scheduler and answer until the asker has gone."""
    from ganger.serving.asking import Asked

    try:
        asked = Asked(setting)
        asked.warm_up()
    except GangerError as error:
        connection.sendall(_framed(_Reply(0, error=str(error))))
        return
    connection.sendall(_framed(_Reply(0)))
    stream = connection.makefile("rb")
    while True:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(head)
        if length > _LARGEST:
            return
        question = msgspec.msgpack.decode(stream.read(length), type=_Ask)
        try:
            reply = _Reply(question.number, *asked.round(question.observation))
        except Exception as error:  # whatever a scheduler does wrong is an answer to who asked
            reply = _Reply(question.number, error=f"{type(error).__name__}: {error}")
        connection.sendall(_framed(reply))


def _end_with_parent(parent: int) -> None:
    """Even a scheduler that never comes back must not outlive who asks it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def main() -> None:
    """The process: a socket's number and a Setting are its arguments."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = socket.socket(fileno=int(sys.argv[1]))
    # The asker is gone: nobody is left to tell.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve(connection, msgspec.json.decode(sys.argv[2], type=Setting))


if __name__ == "__main__":
    main()
