"""An HTTP service that decides: for engines that Ganger does not drive itself.

POST an Observation to /decide, and get the decisions of its round. The scheduler is asked under a
guard, one round after the other; when more requests wait than can be answered in time, the rest
are told so at once (503). Nothing that is received is executed or unpickled.
"""

import asyncio
import hmac
import ipaddress
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

import ganger
from ganger.config import Config
from ganger.errors import ConfigError, MissingExtraError, ObservationError
from ganger.serving.checking import check_observation
from ganger.serving.guard import Answer, Guard
from ganger.serving.metrics import Metrics
from ganger.serving.records import Records
from ganger.serving.status import status_page
from ganger.simulator.observation import Observation

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


class ServiceConfig(Config, frozen=True, kw_only=True):
    """How the service meets the network."""

    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback one demands a token."""
    port: int = 8471
    """Port to listen on; 0: any that is free."""
    largest_body: int = 8 << 20
    """Bytes of a request; a larger one is refused (413)."""
    body_s: float = 5.0
    """Time that a client has to send its request (408)."""
    waiting: int = 16
    """Requests that may wait for their turn; more are refused (503)."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(host: str, token: str | None) -> None:
    """Refuse to be reached from elsewhere without a token.

    Raises:
        ConfigError: a token is needed, or is too short to be one.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines: a token is needed; "
            "put one in a file and give --token-file"
        )
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable()):
        raise ConfigError("the token is no secret: expected 16 printable ASCII characters or more")


def pages(
    metrics: Metrics, token: str | None, about: dict[str, Any], config: ServiceConfig
) -> "Starlette":
    """The application of a driver: its metrics and its status page, nothing to decide."""
    return Service(None, config, metrics, Records(None), token, about).application()


class Service:
    """Answers HTTP requests."""

    def __init__(
        self,
        guard: Guard | None,
        config: ServiceConfig,
        metrics: Metrics,
        records: Records,
        token: str | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        """Serve a guarded scheduler.

        Args:
            guard: decides; None: there is nothing to decide here.
            token: what a client must show as `Authorization: Bearer TOKEN`.
            about: shown on the status page.

        Raises:
            ConfigError: the address demands a token.
        """
        check_token(config.host, token)
        self._guard = guard
        self._config = config
        self._metrics = metrics
        self._records = records
        self._token = None if token is None else token.encode()
        self._about = about or {}
        self._waiting = 0
        self._turn = ThreadPoolExecutor(1, "decide")

    def application(self) -> "Starlette":
        """The ASGI application."""
        try:
            from starlette.applications import Starlette
            from starlette.exceptions import HTTPException
            from starlette.middleware import Middleware
            from starlette.routing import Route
        except ImportError:
            raise MissingExtraError("The HTTP service", "serve") from None
        routes = [
            Route("/", self._status),
            Route("/health", self._health),
            Route("/metrics", self._prometheus),
        ]
        if self._guard is not None:
            routes += [
                Route("/decide", self._decide, methods=["POST"]),
                Route("/openapi.json", self._openapi),
            ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(_Gate, service=self)],
            exception_handlers={HTTPException: _refused, Exception: _failed},
        )

    def admits(self, headers: Any) -> bool:
        """Whether a request shows the token; takes equally long for any wrong one."""
        if self._token is None:
            return True
        shown = headers.get(b"authorization", b"")
        return hmac.compare_digest(shown, b"Bearer " + self._token)

    def count(self, status: int) -> None:
        """Count a request."""
        self._metrics.requests.labels(str(status)).inc()

    async def _decide(self, request: "Request") -> "Response":
        if self._waiting >= self._config.waiting:
            return _answer(503, {"error": "too many requests wait"}, {"Retry-After": "1"})
        self._waiting += 1
        try:
            body = await _body(request, self._config)
            observation = msgspec.json.decode(body, type=Observation)
            check_observation(observation)
            assert self._guard is not None
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._turn, self._guard.decide, observation)
        except _BodyError as error:
            return _answer(error.status, {"error": str(error)}, {"Connection": "close"})
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            status = 422 if isinstance(error, msgspec.ValidationError) else 400
            return _answer(status, {"error": f"the body is no observation: {error}"})
        except ObservationError as error:
            return _answer(422, {"error": str(error)})
        finally:
            self._waiting -= 1
        self._metrics.answered(observation, answer, "acted")
        self._records.round(time.time(), observation, answer, "acted")
        return _answer(200, answer)

    async def _health(self, request: "Request") -> "Response":
        ready = self._guard is None or self._guard.process.ready
        return _answer(200, {"ganger": ganger.__version__, "scheduler_ready": ready})

    async def _prometheus(self, request: "Request") -> "Response":
        from starlette.responses import Response

        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _status(self, request: "Request") -> "Response":
        from starlette.responses import HTMLResponse

        return HTMLResponse(
            status_page(self._about, self._metrics),
            headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
        )

    async def _openapi(self, request: "Request") -> "Response":
        return _answer(200, openapi(self._token is not None))


def openapi(secured: bool) -> dict[str, Any]:
    """What the service takes and gives, as OpenAPI 3.1."""
    (asked, answered), components = msgspec.json.schema_components(
        (Observation, Answer), ref_template="#/components/schemas/{name}"
    )

    def content(schema: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schema}}

    error = content({"type": "object", "properties": {"error": {"type": "string"}}})
    refusals = {
        "400": "Not JSON", "401": "No token, or a wrong one", "408": "Sent too slowly",
        "413": "Too large", "422": "No observation of a cluster; says what is wrong",
        "503": "Too many requests wait; try again",
    }  # fmt: skip
    responses: dict[str, Any] = {
        status: {"description": text, "content": error} for status, text in refusals.items()
    }
    responses["200"] = {"description": "The decisions of the round", "content": content(answered)}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Ganger", "version": ganger.__version__},
        "paths": {
            "/decide": {
                "post": {
                    "summary": "Decide which stages get the executors on offer",
                    "requestBody": {"required": True, "content": content(asked)},
                    "responses": responses,
                }
            },
            "/health": {"get": {"responses": {"200": {"description": "It runs"}}}},
            "/metrics": {"get": {"responses": {"200": {"description": "For Prometheus"}}}},
        },
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


class _BodyError(Exception):
    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status


async def _body(request: "Request", config: ServiceConfig) -> bytes:
    """All of a request, within its limits."""
    from starlette.requests import ClientDisconnect

    body = bytearray()
    try:
        async with asyncio.timeout(config.body_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > config.largest_body:
                    raise _BodyError(413, f"the body has more than {config.largest_body} bytes")
    except TimeoutError:
        raise _BodyError(408, f"the body took more than {config.body_s:g} s") from None
    except ClientDisconnect:
        raise _BodyError(400, "the client has gone") from None
    return bytes(body)


class _Gate:
    """Looks at the token of every request, and counts it."""

    def __init__(self, app: Any, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._service.count(message["status"])
            await send(message)

        if not self._service.admits(dict(scope["headers"])):
            refusal = _answer(401, {"error": "a token is needed"}, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, counted)
            return
        await self._app(scope, receive, counted)


def _answer(status: int, content: Any, headers: dict[str, str] | None = None) -> "Response":
    from starlette.responses import Response

    return Response(
        msgspec.json.encode(content), status, headers=headers, media_type="application/json"
    )


async def _refused(request: "Request", error: Exception) -> "Response":
    """No such page, or another method."""
    status: int = error.status_code  # type: ignore[attr-defined]
    what = f"{request.method} {request.url.path}: {error.detail}"  # type: ignore[attr-defined]
    return _answer(status, {"error": what})


async def _failed(request: "Request", error: Exception) -> "Response":
    """A fault of ours: uvicorn logs it."""
    return _answer(500, {"error": "the service failed; its log says how"})
