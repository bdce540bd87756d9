"""The package's own HTTP server (`appworld serve environment`): the compatible fallback, and the reference in tests.

Slower than the pool and less safe: agents' code shares the server's process with the databases, so it can read every
password there. It is kept to the loopback address and never sees the ground truth when it gets an agent root.
"""

import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.processes.addresses import is_healthy
from tasks.core.processes.resources import SPARING
from tasks.core.records.files import read_json_lines
from tasks.core.worlds.appworld.layout import engine_variables
from tasks.core.worlds.appworld.pool import EpisodePool, ShellRun, Verdict

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
        self.root, limits = root, limits or ServerLimits()
        limited = [("RLIMIT_AS", limits.memory_bytes), ("RLIMIT_FSIZE", limits.file_bytes), ("RLIMIT_CORE", 0)]
        more = _LOG_STATUSES if log_statuses else ""
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
        body, kind = json.dumps(arguments), {"Content-Type": "application/json"}
        if self._http.is_closed:
            raise WorldFault(f"the AppWorld server did not answer /{name}: it was ended")
        try:
            response = self._http.post(f"/{name}", content=body, headers=kind, timeout=seconds)
        except httpx2.TransportError as error:
            raise WorldFault(f"the AppWorld server did not answer /{name}: {error or type(error).__name__}") from error
        text = response.content.decode("utf-8", "replace")
        if response.status_code != httpx2.codes.OK:
            raise ServerError(name, response.status_code, text)
        return json.loads(text)["output"]

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

    def _await_start(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self.alive:
            if is_healthy(f"{self._url}/"):
                return
            time.sleep(0.1)
        raise WorldFault("the AppWorld server did not start; does `python -m appworld.cli verify tests` work?")


def make_agent_root(root: Path, folder: Path) -> Path:
    """Link everything of `root` but ground truth and data sets into the empty folder `folder`; returns it."""
    data, source = folder / "data", root.resolve() / "data"
    data.mkdir(parents=True)
    for name in ("api_docs", "base_dbs", "version.txt"):
        if (source / name).exists():
            (data / name).symlink_to(source / name)
    for task in sorted((source / "tasks").iterdir()):
        (data / "tasks" / task.name).mkdir(parents=True)
        for name in ("specs.json", "dbs"):
            (data / "tasks" / task.name / name).symlink_to(task / name)
    return folder


class OfficialServers:
    """Opens episodes, each on a server of its own; a server is used again after an episode that ended well.

    Thread-safe. Slow to start (seconds a server) and heavy (some 240 MB each): meant for comparison, not for training.
    """

    def __init__(self, python: Path, root: Path, evaluator: EpisodePool, limits: ServerLimits | None = None) -> None:
        self._python, self._root, self._evaluator, self._limits = python, root, evaluator, limits
        self._lock = threading.Lock()
        self._idle: list[OfficialServer] = []
        self._live: set[OfficialServer] = set()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._closed = False

    def open(self, task_id: str) -> "OfficialEpisode":
        """A fresh episode. Raises WorldFault."""
        server = self._server()
        try:
            facts = self._evaluator.facts(task_id)
            return OfficialEpisode(server, task_id, facts, self._evaluator, lambda well: self._give_back(server, well))
        except BaseException:
            self._give_back(server, well=False)
            raise

    def close(self) -> None:
        """End all servers; the pool that evaluates is its owner's to close. Idempotent."""
        with self._lock:
            self._closed = True
            servers = [*self._idle, *self._live]
            self._idle.clear()
        for server in servers:
            server.kill()
        if self._folder is not None:
            self._folder.cleanup()

    def _server(self) -> OfficialServer:
        with self._lock:
            if self._closed:
                raise WorldFault("the servers are closed")
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="appworld-agent-root-")
                make_agent_root(self._root, Path(self._folder.name) / "root")
            root = Path(self._folder.name) / "root"
            server = self._idle.pop() if self._idle else None
        if server is None or not server.alive:
            server = OfficialServer(self._python, root, self._limits, log_statuses=True)
        with self._lock:
            self._live.add(server)
        return server

    def _give_back(self, server: OfficialServer, well: bool) -> None:
        with self._lock:
            self._live.discard(server)
            keep = well and server.alive and not self._closed
            if keep:
                self._idle.append(server)
        if not keep:
            server.kill()


class OfficialEpisode:
    """One task on one server. Not thread-safe."""

    def __init__(
        self,
        server: OfficialServer,
        task_id: str,
        facts: dict[str, Any],
        evaluator: EpisodePool,
        on_close: Callable[[bool], None],
    ) -> None:
        """Initialise the server's world. Raises WorldFault."""
        self._server, self._task_id, self._evaluator, self._on_close = server, task_id, evaluator, on_close
        self.facts = facts
        self._limits = evaluator.limits
        self._well, self._closed, self._seen = True, False, 0
        experiment = f"loopline-{uuid.uuid4().hex}"  # two worlds of one name would spoil each other's verdicts
        self._outputs = server.root / "experiments" / "outputs" / experiment
        self._names = _api_names(server.root)
        self._call("initialize", experiment_name=experiment, load_ground_truth=False)

    def run(self, code: str) -> ShellRun:
        """Run as `LiveEpisode.run` does; API calls are from the server's own log, which agents' code could change."""
        try:
            output = self._call("execute", code=code.encode("utf-8", "replace").decode("utf-8"))
        except WorldFault as fault:
            ended = not self._server.alive and not self._server.killed
            if ended or isinstance(fault.__cause__, TimeoutError):
                raise ExecutionTimeout(f"the code ended or blocked its server: {fault}") from fault
            raise
        completed, failed = bool(self._call("task_completed")), output.startswith("Execution failed. Traceback:")
        if (dropped := len(output) - self._limits.output_chars) > 0:  # cut as the pool's shell cuts what is printed
            output = f"{output[: self._limits.output_chars]}\n... ({dropped} more characters)"
        return ShellRun(output, failed, completed, self._new_calls())

    def evaluate(self) -> Verdict:
        """The verdict on the state that the server saved after its last call. Raises WorldFault."""
        if not self._well:
            raise WorldFault(f"the server of task {self._task_id} failed; what it saved is not to be trusted")
        databases = self._outputs / "tasks" / self._task_id / "dbs"
        try:
            changes = {file.stem: read_json_lines(file) for file in sorted(databases.glob("*.jsonl"))}
            hashes = json.loads((databases / "model_hashes.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise WorldFault(f"the server saved no state of task {self._task_id}: {error}") from error
        return self._evaluator.evaluate_saved(self._task_id, changes, hashes)

    def close(self) -> None:
        """Give the server back, or end it after a fault. Idempotent."""
        if not self._closed:
            self._closed = True
            shutil.rmtree(self._outputs, ignore_errors=True)
            self._on_close(self._well)

    def _call(self, name: str, **arguments: Any) -> Any:
        seconds = self._limits.wall_seconds_per_run + self._limits.hung_seconds
        try:
            return self._server.call(name, seconds, task_id=self._task_id, **arguments)
        except WorldFault:
            self._well = False
            raise

    def _new_calls(self) -> tuple[tuple[str, bool], ...]:
        log = self._outputs / "tasks" / self._task_id / "logs" / "api_calls.jsonl"
        entries = read_json_lines(log) if log.exists() else []
        fresh, self._seen = entries[self._seen :], len(entries)
        named = ((entry, self._name(entry["method"], entry["url"])) for entry in fresh)
        return tuple((name, entry["status"] != 200) for entry, name in named if name)

    def _name(self, method: str, url: str) -> str:
        return next((name for one, path, name in self._names if one == method and path.fullmatch(url)), "")


def _api_names(root: Path) -> list[tuple[str, "re.Pattern[str]", str]]:
    names = []
    for file in sorted((root / "data" / "api_docs" / "standard").glob("*.json")):
        for doc in json.loads(file.read_text(encoding="utf-8")).values():
            pattern = "".join(
                "[^/]+" if p.startswith("{") else re.escape(p) for p in re.split(r"(\{.*?\})", doc["path"])
            )
            names.append((doc["method"].lower(), re.compile(pattern), f"{file.stem}.{doc['api_name']}"))
    return names
