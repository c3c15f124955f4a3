"""Debian's Chromium without a window, driven over its DevTools protocol; it and its profile are gone afterwards."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import connect

from tests.support.timeouts import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Why tests of pages are skipped where it is not installed.
MISSING = "no chromium here: apt-get install chromium"
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-port=0"
)
#: No page reaches beyond this machine.
_HERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_DEADLINE_S = 30.0 * PATIENCE


class Chromium:
    """One page. `errors` holds the errors of its console, exceptions included; `requests` every URL it requested."""

    def __init__(self, width: int = 1280, height: int = 1000) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._size = (width, height)
        self._calls = 0

    def __enter__(self) -> Self:
        assert CHROMIUM is not None, MISSING
        self._home = tempfile.mkdtemp(prefix="proteus-chromium-")
        command = [CHROMIUM, *_FLAGS.split(), _HERE, f"--user-data-dir={self._home}", "about:blank"]
        self._log = Path(self._home) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            self._socket = connect(self._address(), max_size=None, open_timeout=_DEADLINE_S, proxy=None)
            self._session: str | None = None
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.call(
                "Emulation.setDeviceMetricsOverride",
                width=self._size[0],
                height=self._size[1],
                deviceScaleFactor=1,
                mobile=False,
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._session = None
            self.call("Browser.close")  # it ends its own children, as a kill would not
            self._process.wait(_DEADLINE_S)
        finally:
            self._socket.close()
            self._end()

    @contextmanager
    def without_complaints(self, ignored: tuple[str, ...] = ()) -> Iterator[None]:
        """Forget what was said and asked for before, and assert at the end that nothing was complained of.

        Parameters
        ----------
        ignored : complaints that begin so are somebody else's.
        """
        self.errors.clear()
        self.requests.clear()
        yield
        assert [error for error in self.errors if not error.startswith(ignored)] == []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        self._calls += 1
        number = self._calls
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=_DEADLINE_S))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._note(answer)

    def open(self, path: Path, *, dark: bool = False) -> None:
        """Load a file and wait until its pictures are drawn."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.call("Page.navigate", url=path.as_uri())
        self.evaluate(
            """new Promise((done) => {
                 const look = () => document.documentElement?.dataset.drawn ? requestAnimationFrame(() => done(1))
                                                                           : setTimeout(look, 20);
                 look(); })"""
        )

    def visit(self, url: str, until: str, look: str = "null") -> Any:
        """Load a page of a server, wait until the JavaScript expression `until` holds, return the value of `look`.

        Both are evaluated at once: the page may draw itself again at any moment.
        """
        self.call("Page.navigate", url=url)
        deadline_s = monotonic() + _DEADLINE_S
        there = f"location.href.startsWith({url!r}) && document.body && Boolean({until})"
        while (found := self.evaluate(f"({there}) ? [{look}] : []")) == []:
            seen = self.evaluate("document.body?.innerText.slice(0, 500)")
            assert monotonic() < deadline_s, f"{url}: waited for {until}; it shows {seen!r}; {self.errors}"
            self.evaluate("new Promise((done) => setTimeout(done, 50))")
        return found[0]

    def evaluate(self, expression: str) -> Any:
        """Return the value of JavaScript in the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a mouse event: mouseMoved, mousePressed, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x: float, to_x: float, y: float) -> None:
        """Press at (x, y), move to (to_x, y), let go."""
        button = {"button": "left", "clickCount": 1}
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, **button)
        for part in (0.5, 1.0):
            self.mouse("mouseMoved", x + (to_x - x) * part, y, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, y, **button)
        self.settle()

    def pdf(self, path: Path) -> None:
        """Print the page to a PDF."""
        answer = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _address(self) -> str:
        """Return where the browser listens, once it has written that down."""
        port = Path(self._home) / "DevToolsActivePort"
        for _ in range(int(_DEADLINE_S / 0.05)):
            lines = port.read_text().split() if port.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError(f"chromium did not start: {self._log.read_text(errors='replace')[-500:]}")

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(arg.get("value")) for arg in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def _end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
