"""Compares databases put back and changed in place with the package's own loading.

Run by test_authored_root in AppWorld's interpreter: python task_databases.py REPOSITORY TASK_ID...

Holds the tasks in turn, with changes by the package's models in between, and prints one JSON line per task: the apps
whose databases differ from those that the package loads.
"""

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

repository, task_ids = Path(sys.argv[1]), sys.argv[2:]
for name in ("tasks", "tasks.core.worlds"):  # without what their __init__ imports
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(repository / name.replace(".", "/"))]

from appworld.apps.model_lib import ModelHashHandler  # noqa: E402
from appworld.common.path_store import path_store  # noqa: E402
from appworld.task import Task  # noqa: E402
from sqlalchemy import text  # noqa: E402

from tasks.core.worlds.appworld.inside.episodes.databases import END, START, TaskDatabases, _connection  # noqa: E402
from tasks.core.worlds.appworld.inside.episodes.engine import Engine  # noqa: E402


def dumps(home: str, apps: list[str]) -> dict[str, list[str]]:
    return {app: list(_connection(home, app).iterdump()) for app in apps}


def changes_of(task_id: str) -> dict[str, list[Any]]:
    folder = Path(path_store.data) / "tasks" / task_id / "dbs"
    return {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in folder.glob("*.jsonl")}


def use(databases: TaskDatabases) -> None:
    """Delete the first row of every table, recorded by the engine's own tracker."""
    databases.end.reset_db_home_path()
    for app in (*databases.apps, "admin"):
        for model in databases.end[app].SQLModel.models():
            table = model.__tablename__
            with model.db.engine.begin() as connection:
                connection.execute(text(f'DELETE FROM "{table}" WHERE id = (SELECT min(id) FROM "{table}")'))


def results() -> Iterator[dict[str, object]]:
    Engine()
    databases = TaskDatabases()
    apps = [*databases.apps, "admin"]
    for task_id in task_ids:
        task = Task.load(task_id, load_ground_truth=False)
        expected = dumps(task.model_collection.to_db_home_path, apps)
        task.model_collection.close()
        databases.hold(task.datetime.isoformat(), changes_of(task_id), START, END)
        found = {home: dumps(home, apps) for home in (START, END)}
        yield {
            "task_id": task_id,
            "different": [(home, app) for home in found for app in apps if found[home][app] != expected[app]],
            "unclean": any(databases.changes().values()) or any(ModelHashHandler.data[END].values()),
        }
        use(databases)
        yield {"used": sorted(app for app, changes in databases.changes().items() if changes)}


for result in results():
    print(json.dumps(result), flush=True)
