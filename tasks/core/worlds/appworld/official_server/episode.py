"""Episodes on official servers, evaluated by the pool."""

import json
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.records.files import read_json_lines
from tasks.core.worlds.appworld.official_server.server import OfficialServer, ServerLimits, make_agent_root
from tasks.core.worlds.appworld.pool import EpisodePool, ShellRun, Verdict

_FAILED = "Execution failed. Traceback:"


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
        completed = bool(self._call("task_completed"))
        return ShellRun(
            _shortened(output, self._limits.output_chars), output.startswith(_FAILED), completed, self._new_calls()
        )

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
        calls = ((self._name(entry), entry["status"] != 200) for entry in fresh)
        return tuple((name, failed) for name, failed in calls if name)

    def _name(self, entry: dict[str, Any]) -> str:
        for method, pattern, name in self._names:
            if method == entry["method"] and pattern.fullmatch(entry["url"]):
                return name
        return ""


def _shortened(output: str, most: int) -> str:
    """The output, cut as the pool's shell cuts what is printed."""
    dropped = len(output) - most
    return f"{output[:most]}\n... ({dropped} more characters)" if dropped > 0 else output


def _api_names(root: Path) -> list[tuple[str, "re.Pattern[str]", str]]:
    names = []
    for file in sorted((root / "data" / "api_docs" / "standard").glob("*.json")):
        for doc in json.loads(file.read_text(encoding="utf-8")).values():
            pattern = "".join(
                "[^/]+" if p.startswith("{") else re.escape(p) for p in re.split(r"(\{.*?\})", doc["path"])
            )
            names.append((doc["method"].lower(), re.compile(pattern), f"{file.stem}.{doc['api_name']}"))
    return names
