"""A headless Chromium, driven through its DevTools protocol over a pair of pipes: no port, no
package. `chromium()` skips the test where there is none.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

_WAIT_S = 60.0
_KEYS = {
    "Tab": ("Tab", 9, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Escape": ("Escape", 27, ""),
    "+": ("Equal", 187, "+"),
    "0": ("Digit0", 48, "0"),
}


class Page:
    """A tab with a file in it, and all that it complained of or asked the network for."""

    def __init__(self, browser: "_Browser", session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, parameters, self._session)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Until an expression is true."""
        self.evaluate(
            f"new Promise(done => {{ const look = () => ({condition}) ? done(true) :"
            " setTimeout(look, 20); look(); })"
        )

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.evaluate("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")

    def press(self, key: str, *, shift: bool = False) -> None:
        code, number, text = _KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code, text=text,
                windowsVirtualKeyCode=number, modifiers=8 if shift else 0,
            )  # fmt: skip
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.settle()

    def screenshot(self, path: Path) -> None:
        """Of the whole page."""
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call(
            "Page.captureScreenshot", captureBeyondViewport=True, clip=box | {"scale": 1}
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self.call("Page.printToPDF")["data"])

    @property
    def complaints(self) -> list[Any]:
        """Errors and warnings in the console, and what was thrown and not caught."""
        found: list[Any] = []
        for method, about in self._browser.events_of(self._session):
            if method == "Runtime.exceptionThrown":
                found.append(about["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
                found.append(about["args"])
            elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                found.append(about["entry"])
        return found

    @property
    def requests(self) -> list[str]:
        """Every address asked for."""
        return [
            about["request"]["url"]
            for method, about in self._browser.events_of(self._session)
            if method == "Network.requestWillBeSent"
        ]


class _Browser:
    """The process and its two pipes, over which null-terminated JSON goes."""

    def __init__(self, program: str, profile: str) -> None:
        # A plain sh knows file descriptors of one digit only.
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        self._process = subprocess.Popen(
            [
                "bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", program,
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(to_read, to_write), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._answers: Queue[dict[str, Any]] = Queue()
        self._events: list[tuple[str, str, dict[str, Any]]] = []
        self._calls = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._from, 1 << 16):
            *whole, rest = (rest + data).split(b"\0")
            for message in map(json.loads, whole):
                if "id" in message:
                    self._answers.put(message)
                else:
                    about = (message.get("sessionId", ""), message["method"], message["params"])
                    self._events.append(about)

    def call(self, method: str, parameters: dict[str, Any], session: str = "") -> dict[str, Any]:
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._to, left) :]
        while True:
            try:
                answer = self._answers.get(timeout=_WAIT_S)
            except Empty:
                raise AssertionError(f"Chromium did not answer {method}") from None
            if answer["id"] == self._calls:
                break
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def events_of(self, session: str) -> list[tuple[str, dict[str, Any]]]:
        return [(method, about) for of, method, about in self._events if of == session]

    def open(self, file: Path) -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        page = Page(self, self.call("Target.attachToTarget", attach)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(1200)
        page.call("Page.navigate", url=file.resolve().as_uri())
        page.wait_for("location.protocol === 'file:' && document.readyState === 'complete'")
        return page

    def close(self) -> None:
        with suppress(AssertionError, OSError):
            self.call("Browser.close", {})
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(5)
        os.close(self._to)
        os.close(self._from)


@contextmanager
def chromium() -> Iterator[_Browser]:
    """A browser of its own, gone at the end; skips where Chromium is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no Chromium: scripts/setup-chromium installs it")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = _Browser(program, profile)
        try:
            yield browser
        finally:
            browser.close()
