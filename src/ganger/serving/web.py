"""Runs an ASGI application in a thread, on a socket that is ours before anything is announced."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from ganger.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from starlette.applications import Starlette

_CONNECTIONS = 256
_STOP_S = 5.0


class WebServer:
    """A context: it serves inside."""

    def __init__(self, application: "Starlette", host: str, port: int) -> None:
        """Take the address; requests are answered from `with` on.

        Raises:
            ConfigError: it cannot be had.
        """
        try:
            import uvicorn
        except ImportError:
            raise MissingExtraError("The HTTP service", "serve") from None

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # signals are the command's

        if not 0 <= port <= 65535:
            raise ConfigError(f"port is {port}; expected 0 to 65535")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server: Any = Server(
            uvicorn.Config(
                application,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=int(_STOP_S),
                lifespan="off",
                ws="none",
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="web", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_S + 1)
        self._socket.close()
