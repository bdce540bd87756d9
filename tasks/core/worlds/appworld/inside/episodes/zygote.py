"""The zygote, which forks shells and the engine's process, and that process, which forks worlds and evaluators.

The engine's process has the databases loaded, and is warm in what costs most when it is cold. It is apart from the
zygote because shells must not inherit any data.
"""

import contextlib
import json
import os
import socket
from typing import Any
from urllib.parse import urlencode

from tasks.core.confinement.inside import frames
from tasks.core.confinement.inside.forking import Forker
from tasks.core.confinement.inside.jail import Jail, keep_only
from tasks.core.worlds.appworld.inside.episodes.databases import END, START, TaskDatabases, serve_evaluations
from tasks.core.worlds.appworld.inside.episodes.engine import ApiServer, Engine
from tasks.core.worlds.appworld.inside.episodes.shell import Shell
from tasks.core.worlds.appworld.inside.episodes.world_server import WorldServer

_ROUNDS = 3  # CPython 3.11 specialises code that ran a few times; later that would copy shared pages
_SHELLS = 2  # descriptors that a world may be sent at once: its new shell's, while the old one's is open


class EngineProcess(Forker):
    """Forks worlds and evaluators."""

    def __init__(self, control: int, engine: Engine, limits: dict[str, Any]) -> None:
        """Reads the task to warm up on from `control`, and says there when it is ready."""
        super().__init__(socket.socket(fileno=control))
        self._limits = limits
        self._jail = Jail(limits["confinement"], limits["world_memory_bytes"], limits["world_cpu_seconds"], _SHELLS)
        self._api = ApiServer(engine.app, engine.app_names)
        self._databases = TaskDatabases()
        cold = ""
        try:
            warm_up(self._databases, self._api, frames.receive(control))
        except Exception as error:  # a broken task is its own episodes' affair
            cold = f"{type(error).__name__}: {error}"
        self._api.log.clear()
        self.ready(cold=cold, app_descriptions=engine.app_descriptions)

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """A world, or an evaluator, that serves the one descriptor."""
        if request["fork"] == "world":
            pipeline = socket.socket(fileno=os.dup(descriptors[0]))
            self._jail.shut(pipeline.fileno(), parent)
            WorldServer(pipeline, self._api, self._databases, self._limits).serve()
        else:
            self.die_with(parent)
            keep_only(descriptors)
            serve_evaluations(descriptors[0], self._databases)


def warm_up(databases: TaskDatabases, api: ApiServer, task: dict[str, Any]) -> None:
    """Call the reading APIs of every app, change rows and look at the changes, on one task's data."""
    for _ in range(_ROUNDS):
        databases.hold(task["datetime"], task["changes"], START, END)
        tokens = _log_in(api, task["supervisor"])
        for name, method, path in api.plain_routes:
            if method == "GET":
                _call(api, method, path, tokens.get(name, ""), {})
        _call(api, "POST", "/supervisor/message", "", {})
        _change_rows(databases)
        _look_at_changes(databases, task["supervisor"])
        databases.changes(), databases.hashes()


def _change_rows(databases: TaskDatabases) -> None:
    """Delete and create one row of every table: what compiles these statements costs more than running them."""
    for app in databases.apps:
        for model in databases.end[app].SQLModel.models():
            with contextlib.suppress(Exception):  # rows that others need, or that the model makes by itself
                row = model.first()
                if row is not None:
                    model(**{name: value for name, value in row.dict().items() if name != "id"}).save()
                    model.by_id(row.id).save()
                    row.delete()


def _log_in(api: ApiServer, supervisor: dict[str, str]) -> dict[str, str]:
    passwords = json.loads(_call(api, "GET", "/supervisor/account_passwords", "", {})["body"])
    tokens = {}
    for account in passwords:
        user = supervisor["phone_number" if account["account_name"] == "phone" else "email"]
        form = {"username": user, "password": account["password"]}
        answer = _call(api, "POST", f"/{account['account_name']}/auth/token", "", form, form=True)
        if answer["status"] == 200:
            tokens[account["account_name"]] = json.loads(answer["body"])["access_token"]
    return tokens


def _call(
    api: ApiServer, method: str, url: str, token: str, data: dict[str, Any], form: bool = False
) -> dict[str, Any]:
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    headers = [["content-type", kind], ["authorization", f"Bearer {token}"]]
    body = urlencode(data) if form else json.dumps(data)
    return api.answer({"method": method, "url": url, "headers": headers, "body": body})


def _look_at_changes(databases: TaskDatabases, supervisor: dict[str, str]) -> None:
    from appworld.apps.model_lib import ModelHashHandler
    from appworld.collections.models import ModelCollectionPair
    from appworld.evaluator import TestTracker

    for app in databases.apps:
        for model in databases.end[app].SQLModel.model_names():
            ModelHashHandler.data[END][app][model] += 1
    models = ModelCollectionPair(START, databases.start, END, databases.end)
    models.start.admin.MainUser.find_one(**supervisor)
    changed = models.changed_model_names()
    for name in changed:
        for records in models.changed_records(name):
            for record in records:
                models.changed_field_names(name, record.id)
    tracker = TestTracker()
    for truth in ("7", "8"):
        with tracker("an answer"):
            tracker.answer(models.end.supervisor.Task.first().answer, truth)
        with tracker("a case"):
            tracker.case(changed, "==", {truth})


def main(control_descriptor: int, limits: dict[str, Any]) -> None:
    """Serve until the control socket ends. `limits` holds PoolLimits' fields and "confinement"."""
    os.chdir("/")
    zygote = Zygote(socket.socket(fileno=control_descriptor), limits)
    zygote.ready(warning=zygote.jail.warning)
    zygote.serve()


class Zygote(Forker):
    """See the package's docstring for the tree of processes."""

    def __init__(self, control: socket.socket, limits: dict[str, Any]) -> None:
        super().__init__(control)
        self._limits = limits
        self.jail = Jail(limits["confinement"], limits["shell_memory_bytes"], limits["shell_cpu_seconds"])
        self._engine = Engine()
        self._shell = Shell(limits)

    def become(self, request: dict[str, Any], descriptors: list[int], parent: int) -> None:
        """A shell on the one descriptor, or the engine's process that serves it."""
        if request["fork"] == "shell":
            self._shell.start(request["clock"])
            self.jail.shut(descriptors[0], parent)
            self._shell.serve(descriptors[0])
        else:
            self.die_with(parent)
            keep_only(descriptors)
            EngineProcess(descriptors[0], self._engine, self._limits).serve()
