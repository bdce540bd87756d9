"""The databases of one task after another, put back and changed in place: one process serves many episodes.

Binding databases anew costs more than an episode's own work on them; what an episode changed is little and known.
"""

import os
import random
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

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
        self._base = {app: _copied(_connection(START, app)) for app in every}
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


def _copied(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:")
    connection.backup(copy)
    return copy
