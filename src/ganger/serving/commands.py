"""`ganger serve`: flags, and what is said to people."""

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ganger.errors import ConfigError
from ganger.serving.guard import Guard, GuardConfig, load_guard
from ganger.serving.process import Setting

_Flat = arg(name="")
_GUARD = GuardConfig()


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Decide for engines over HTTP: POST an observation to /decide, get the decisions."""

    scheduler: Annotated[Positional[str], arg(metavar="SCHEDULER")] = "general"
    """The path of a training run or checkpoint; general, the policy that comes with Ganger; or a
    heuristic."""
    sample: bool = False
    """Let a learned scheduler draw its actions instead of taking the most probable ones."""
    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback one demands a token."""
    port: int = 8471
    """Port to listen on; 0: any that is free, which is then said."""
    token_file: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Holds the token that clients must show, as Authorization: Bearer TOKEN."""
    guard: Annotated[GuardConfig, _Flat] = _GUARD
    record: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Log every round there: what was seen, what was answered, how fast."""

    def run(self) -> None:
        from ganger.serving.metrics import Metrics
        from ganger.serving.records import Records
        from ganger.serving.service import Service, ServiceConfig
        from ganger.serving.web import WebServer

        metrics = Metrics()
        config = ServiceConfig(host=self.host, port=self.port)
        records = Records(self.record)
        with stopping() as stop, guarded(Setting(self.scheduler, self.sample), self.guard) as guard:
            about = {"scheduler": guard.process.setting, "fallback": self.guard.fallback}
            service = Service(guard, config, metrics, records, read_token(self.token_file), about)
            with WebServer(service.application(), config.host, config.port) as server:
                say(f"{guard.process.setting} decides at {server.url}/decide; Ctrl-C ends it")
                stop.wait()
        records.close()
        figures = metrics.figures()
        print(json.dumps({name: figures[name] for name in sorted(figures) if figures[name]}))


def say(line: str) -> None:
    """Tell people, on standard error."""
    print(f"ganger: {line}", file=sys.stderr, flush=True)


def read_token(path: Path | None) -> str | None:
    """The secret in a file.

    Raises:
        ConfigError: it cannot be read, or others may read it.
    """
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
        if path.stat().st_mode & 0o077:
            say(f"{path} can be read by others: chmod 600 {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: holds no token: {error}") from None
    return token


@contextlib.contextmanager
def guarded(setting: Setting, config: GuardConfig) -> Iterator[Guard]:
    """A guard that is ready, and is closed afterwards."""
    say(f"loading {setting}, and {config.fallback} as fallback")
    guard = load_guard(setting, config, say=say)
    try:
        yield guard
    finally:
        guard.close()


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; once more ends the process at once."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def ask(number: int, frame: Any) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, ask) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
