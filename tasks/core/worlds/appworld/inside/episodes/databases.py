"""The databases of one task after another, put back and changed in place, and verdicts on their final states.

One process serves many episodes: binding databases anew costs more than an episode's own work on them; what an episode
changed is little and known. Verdicts are made in a process that runs no agent's code and answers no agent's request."""

import importlib.util
import os
import random
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, NoReturn

from tasks.core.confinement.inside import frames
from tasks.core.worlds.appworld.inside.episodes.engine import APPWORLD_SEED, set_clock

START, END = ":memory:task_input-loopline_1", ":memory:task_output-loopline_1"
"""The package's names for a task's state before and after an episode."""

Statement = Sequence[Any]
"""[SQL, parameters, many], as the engine's own tracker records a change and as a task's files hold it."""

_STATEMENTS = ("INSERT", "UPDATE", "DELETE", "CREATE", "DROP")  # what the engine's own tracker records


class TaskDatabases:
    """Every app's database at START and at END, at first without a task. One per process."""

    def __init__(self) -> None:
        """Read the base databases of the root. Raises what the package raises for broken ones."""
        from appworld.apps import get_all_apps
        from appworld.apps.api_lib import set_local_show_api_response_schemas
        from appworld.collections.models import ModelCollection

        self.apps: tuple[str, ...] = tuple(get_all_apps(skip_admin=True))
        every = [*self.apps, "admin"]
        folder = os.path.join(os.environ["APPWORLD_ROOT"], "data", "base_dbs")  # noqa: PTH118 - the package's style
        ModelCollection.load(START, folder, load_apps=every)
        self.start = ModelCollection.load(START, START, load_apps=every)
        ModelCollection.load(END, folder, load_apps=every)
        self.end = ModelCollection.load(END, END, load_apps=every)
        self._base = {app: sqlite3.connect(":memory:") for app in every}
        for app, copy in self._base.items():
            _connection(START, app).backup(copy)
        self._touched: dict[str, set[str]] = {START: set(), END: set()}
        set_local_show_api_response_schemas(True)

    def hold(self, moment: str, changes: Mapping[str, Sequence[Statement]], *homes: str) -> None:
        """Be a task's databases at `homes`: the base and its `changes`, at its time (ISO 8601). Forgets what was.

        Raises ValueError for statements that are no change, sqlite3.Error for those that don't fit the base.
        """
        from appworld.apps.model_lib import get_direct_cached_sqlite3_connection

        get_direct_cached_sqlite3_connection.cache_clear()
        for home in homes:
            self._put_back(home)
            self.apply(home, changes)
        for collection in (self.start, self.end):
            collection.clear_ids_record_hashes()
        self.end.reset_db_home_path()
        set_clock(datetime.fromisoformat(moment))
        random.seed(APPWORLD_SEED)

    def apply(self, home: str, changes: Mapping[str, Sequence[Statement]]) -> None:
        """Execute recorded changes, unrecorded. Raises as `hold` does."""
        for app, statements in changes.items():
            if not statements:
                continue
            self._touched[home].add(app)
            connection = _connection(home, app)
            for statement, parameters, many in statements:
                if not statement.strip()[:10].upper().startswith(_STATEMENTS):
                    raise ValueError(f"a recorded change is no change: {statement[:40]}")
                (connection.executemany if many else connection.execute)(statement, parameters)
            connection.commit()

    def changes(self) -> dict[str, list[Any]]:
        """The statements by which each app's database at END was changed since `hold`."""
        return {app: list(_tracker(END, app).changes) for app in self._base}

    def hashes(self) -> dict[str, dict[str, int]]:
        """Number of changes of each model at END, by app."""
        from appworld.apps.model_lib import ModelHashHandler

        return {app: dict(counts) for app, counts in ModelHashHandler.data[END].items()}

    def _put_back(self, home: str) -> None:
        from appworld.apps.model_lib import ModelHashHandler

        for app, base in self._base.items():
            tracker = _tracker(home, app)
            if tracker.changes or app in self._touched[home]:
                connection = _connection(home, app)
                connection.rollback()
                base.backup(connection)
                tracker.changes.clear()
        self._touched[home].clear()
        ModelHashHandler.data[home].clear()


def _tracker(home: str, app: str) -> Any:
    from appworld.apps.model_lib import CachedDBHandler, db_home_to_app_path

    return CachedDBHandler.get(db_home_to_app_path(home, app))[1]


def _connection(home: str, app: str) -> sqlite3.Connection:
    from appworld.apps.model_lib import CachedDBHandler, db_home_to_app_path

    engine, _ = CachedDBHandler.get(db_home_to_app_path(home, app))
    connection: sqlite3.Connection = engine.raw_connection().connection
    return connection


def serve_evaluations(descriptor: int, databases: TaskDatabases) -> NoReturn:
    """Answer two frames, a task and a state of it, with a verdict or a fault, until the peer hangs up."""
    while True:
        task, state = frames.receive(descriptor), frames.receive(descriptor)
        try:
            verdict = evaluate(databases, task, state)
        except Exception as error:
            verdict = {"fault": f"{type(error).__name__}: {error}"}
        frames.send(descriptor, verdict)


def evaluate(databases: TaskDatabases, task: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """{"passed": [...], "failed": [...], "status": str | None, "question": bool} with requirement texts.

    `task`: task_id, datetime, supervisor and changes, as `pool.TaskData` reads them; `state`: changes and hashes.
    Tests that never ran because the state made evaluation.py raise count as failed, as the package's own `success`
    counts them; tests that are missing without an error are a fault (RuntimeError).
    """
    databases.hold(task["datetime"], task["changes"], START, END)
    databases.apply(END, state["changes"])
    return judge(databases, task, state["hashes"])


def judge(databases: TaskDatabases, task: dict[str, Any], hashes: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Run the task's unit tests on the databases as they are now; see `evaluate`."""
    from appworld import evaluator
    from appworld.apps.model_lib import ModelHashHandler
    from appworld.collections.models import ModelCollectionPair
    from appworld.ground_truth import GroundTruth

    evaluator.build_fail_trace = lambda _: ""  # it costs more than the tests, and nobody reads it
    truth = GroundTruth.load(task_id=task["task_id"], mode="minimal")
    for app, counts in hashes.items():
        ModelHashHandler.data[END][app].update(counts)
    models = ModelCollectionPair(START, databases.start, END, databases.end)
    tracker = evaluator.TestTracker(test_data=truth.test_data, difficulty=truth.metadata["difficulty"])
    raised: Exception | None = None
    try:
        _module(f"{truth.loaded_from_directory}/evaluation.py").evaluate(
            test=tracker,
            public_data=truth.public_data,
            private_data=truth.private_data,
            main_user=models.start.admin.MainUser.find_one(**task["supervisor"]),
            models=models,
            ground_truth_answer=truth.answer,
        )
    except Exception as error:
        raised = error
    row = models.end.supervisor.Task.first()
    return {**_verdict(tracker, truth.test_data, raised), "status": row.status, "question": truth.answer is not None}


def _verdict(tracker: Any, test_data: list[dict[str, str]], raised: Exception | None) -> dict[str, Any]:
    passed = [one["requirement"] for one in tracker.passes]
    failed = [one["requirement"] for one in tracker.failures]
    missing = [one["requirement"] for one in test_data if one["requirement"] not in {*passed, *failed}]
    if missing and raised is None:
        raise RuntimeError(f"{len(passed) + len(failed)} of {len(test_data)} tests ran")
    if not test_data:
        raise RuntimeError("the task has no tests")
    return {"passed": passed, "failed": failed + missing, "raised": "" if raised is None else repr(raised)[:500]}


def _module(path: str) -> ModuleType:
    """Imported from its file: by bare name, another evaluation.py may answer in its place."""
    spec = importlib.util.spec_from_file_location("appworld_task_evaluation", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
