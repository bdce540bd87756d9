"""Starting the official server and talking to it."""

import json
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tasks.core.interfaces.world import WorldFault
from tasks.core.processes.addresses import is_healthy
from tasks.core.processes.resources import SPARING
from tasks.core.worlds.appworld.root.layout import engine_variables

_START = """
{sparing}
import resource
for limit, most in {limits!r}:
    resource.setrlimit(getattr(resource, limit), (most, most))
import uvicorn
from appworld.serve.environment import app
{more}
uvicorn.run(app, fd={descriptor}, log_level="critical")
"""
# Every logged API call gets the answer's status; it keeps None when the engine raised instead.
_LOG_STATUSES = """
from appworld.requester import Requester, RequestTracker
add_request, raise_if_failure = RequestTracker.add_request, Requester.raise_if_failure
def add_open(self, *arguments, **keywords):
    before = len(self.requests)
    add_request(self, *arguments, **keywords)
    if len(self.requests) > before:
        self.requests[-1]["status"] = None
def close_last(self, response, *arguments, **keywords):
    requests = self.request_tracker.requests
    if requests and requests[-1].get("status", 0) is None:
        requests[-1]["status"] = response.status_code
    return raise_if_failure(self, response, *arguments, **keywords)
RequestTracker.add_request, Requester.raise_if_failure = add_open, close_last
"""
_END_SECONDS = 5.0
_START_SECONDS = 120.0


@dataclass(frozen=True)
class ServerLimits:
    """Limits that the kernel sets a server, agents' code in it included."""

    memory_bytes: int = 4 * 2**30
    """Address space; more raises MemoryError."""
    file_bytes: int = 2**30
    """Size of one file, such as the state that it saves after every step."""

    @property
    def by_name(self) -> list[tuple[str, int]]:
        """Names of the resource module's."""
        return [("RLIMIT_AS", self.memory_bytes), ("RLIMIT_FSIZE", self.file_bytes), ("RLIMIT_CORE", 0)]


class ServerError(WorldFault):
    """The server answered with an error; `text` is its body."""

    def __init__(self, call: str, status: int, text: str) -> None:
        super().__init__(f"the AppWorld server answered /{call} with {status}: {text[:500]}")
        self.status, self.text = status, text


class OfficialServer:
    """One server process with one live world. Not thread-safe.

    It listens on a socket that is bound before it starts, so that ports never collide, and on loopback only (the
    package's command binds all interfaces).
    """

    def __init__(
        self, python: Path, root: Path, limits: ServerLimits | None = None, log_statuses: bool = False
    ) -> None:
        """Start it on the data of `root`; outputs go to `root`/experiments. Waits until it answers.

        `log_statuses` adds a "status" to the lines of its api_calls.jsonl, which the package does not write.
        """
        self.root = root
        limited, more = (limits or ServerLimits()).by_name, _LOG_STATUSES if log_statuses else ""
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(16)
            self.port = int(listening.getsockname()[1])
            start = _START.format(sparing=SPARING, descriptor=listening.fileno(), limits=limited, more=more)
            self._process = subprocess.Popen(
                [str(python), "-P", "-s", "-c", start],
                env=engine_variables(python, root),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=root,
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        self._url = f"http://127.0.0.1:{self.port}"
        self._http = httpx2.Client(base_url=self._url, trust_env=False)
        try:
            self._await_start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def killed(self) -> bool:
        """Whether somebody else ended the process."""
        return self._process.poll() in (-signal.SIGKILL, -signal.SIGTERM)

    def call(self, name: str, seconds: float = 120.0, **arguments: Any) -> Any:
        """POST /name; its "output". Raises ServerError for an error's answer, WorldFault when there is none."""
        body = json.dumps(arguments)
        if self._http.is_closed:
            raise WorldFault(f"the AppWorld server did not answer /{name}: it was ended")
        try:
            return self._post(name, body, seconds)
        except httpx2.TransportError as error:
            raise WorldFault(f"the AppWorld server did not answer /{name}: {error or type(error).__name__}") from error

    def close(self) -> None:
        """End the process. Idempotent."""
        self._http.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the process at once: it may be stuck in code that ignores signals."""
        self._process.kill()
        self.close()

    def _post(self, name: str, body: str, seconds: float) -> Any:
        kind = {"Content-Type": "application/json"}
        response = self._http.post(f"/{name}", content=body, headers=kind, timeout=seconds)
        text = response.content.decode("utf-8", "replace")
        if response.status_code != httpx2.codes.OK:
            raise ServerError(name, response.status_code, text)
        return json.loads(text)["output"]

    def _await_start(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self.alive:
            if is_healthy(f"{self._url}/"):
                return
            time.sleep(0.1)
        raise WorldFault("the AppWorld server did not start; does `python -m appworld.cli verify tests` work?")


_SHARED = ("api_docs", "base_dbs", "version.txt")
_OF_A_TASK = ("specs.json", "dbs")


def make_agent_root(root: Path, folder: Path) -> Path:
    """Link everything of `root` but ground truth and data sets into the empty folder `folder`; returns it."""
    data, source = folder / "data", root.resolve() / "data"
    data.mkdir(parents=True)
    for name in _SHARED:
        if (source / name).exists():
            (data / name).symlink_to(source / name)
    for task in sorted((source / "tasks").iterdir()):
        (data / "tasks" / task.name).mkdir(parents=True)
        for name in _OF_A_TASK:
            (data / "tasks" / task.name / name).symlink_to(task / name)
    return folder
