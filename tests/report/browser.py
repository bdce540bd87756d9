"""A headless Chromium, driven over its DevTools protocol: open a page, run a script in it, wait, take a picture."""

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
EXECUTABLE = next((found for name in NAMES if (found := shutil.which(name))), "")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-port=0"
)
PATIENCE = 60.0
"""Seconds to wait for a page's condition before it counts as an error."""


class Browser:
    """A browser with one page. A context manager. `profile` is an empty folder for its files."""

    def __init__(self, profile: Path) -> None:
        command = [EXECUTABLE, *OPTIONS.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._calls = 0
        self.errors: list[str] = []
        """Exceptions that no script of the page caught."""
        try:
            port, path = _wait(lambda: _address(profile / "DevToolsActivePort"), "the browser did not start")
            self._socket = connect(f"ws://127.0.0.1:{port}{path}", max_size=None)
            target = self._call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
            attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime"):
                self._call(f"{domain}.enable")
        except BaseException:
            self._process.kill()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    def open(self, address: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of `width` x `height` pixels and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", {"features": scheme})
        self._call("Page.navigate", {"url": "about:blank"})
        self.wait("location.href === 'about:blank'")
        self._call("Page.navigate", {"url": address})
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def before_each_page(self, script: str) -> None:
        """Run a script in every page that is opened from now on, before the page's own."""
        self._call("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page; promises are awaited.

        AssertionError when it throws.
        """
        options = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        _wait(lambda: self.run(f"!!({condition})"), f"never true: {condition}")

    def click(self, selector: str) -> None:
        """Click in the middle of an element, scrolled into view."""
        self._mouse("mousePressed", self._middle(selector))
        self._mouse("mouseReleased", self._middle(selector))

    def hover(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Move the pointer over an element, to a share of its width and height."""
        self._mouse("mouseMoved", self._middle(selector, x, y))

    def click_at(self, selector: str, x: float, y: float) -> None:
        """Click in an element, at a share of its width and height."""
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, self._middle(selector, x, y))

    def write(self, selector: str, text: str) -> None:
        """Type into a field, replacing what it held."""
        self.run(f"(e => {{ e.focus(); e.select && e.select(); }})(document.querySelector({json.dumps(selector)}))")
        self._call("Input.insertText", {"text": text})

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a <select> by its value."""
        self.run(
            f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('input', {{bubbles: true}})); "
            f"e.dispatchEvent(new Event('change', {{bubbles: true}})); }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def text(self, selector: str) -> str:
        """Return the visible text of the first element that matches."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write a PNG of the window, or of the whole page."""
        answer = self._call("Page.captureScreenshot", {"captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(answer["data"]))

    def _middle(self, selector: str, x: float = 0.5, y: float = 0.5) -> dict[str, float]:
        place = self.run(
            f"(e => {{ const top = () => e.getBoundingClientRect().y + e.getBoundingClientRect().height * {y}; "
            f"e.scrollIntoView({{block: 'nearest', inline: 'nearest'}}); window.scrollBy(0, top() - innerHeight / 2); "
            f"const b = e.getBoundingClientRect(); return [b.x + b.width * {x}, top()]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return {"x": place[0], "y": place[1]}

    def _mouse(self, kind: str, place: dict[str, float]) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", {"type": kind, **place, **button})

    def _call(self, method: str, params: dict[str, Any] | None = None, session: str | None = "own") -> Any:
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params or {}}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._calls:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]


def _address(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _wait(ready: Any, complaint: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.02)
    raise AssertionError(complaint)
