"""The MLflow store: open it, find a run again, and add only what it does not hold yet.

Imports MLflow inside functions: the import costs 1.6 s, which stages that record nothing must not pay.
"""

import os
import re
import shlex
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from filelock import FileLock

from tasks.core.config.lineage import LineageConfig
from tasks.core.processes.addresses import without_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

METRICS_PER_BATCH = 1000
PARAMS_PER_BATCH = 100
"""MLflow's limits for one log_batch call."""
_KIND = "mlflow.experimentKind"
_TRAINING = (_KIND, "custom_model_development")
"""The tag by which MLflow's pages open an experiment as model training, with runs and charts first; they would take
it for an application because it has traces."""
ARTIFACTS = "mlartifacts"
"""Folder of the files of a local store, beside its database."""
_ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("trace_tags", "value"),
)
"""Tables and columns in which MLflow's database holds whole paths of files."""
UI = "http://127.0.0.1:5000"
"""Default address of the pages of `mlflow ui`."""


class LineageError(RuntimeError):
    """A store that MLflow could not reach, or that refused a record.

    The message is one line: store, reason, and remedy.
    """


@dataclass(frozen=True)
class Store:
    """One MLflow experiment."""

    client: "MlflowClient"
    experiment_id: str
    uri: str

    def page(self, trace_id: str) -> str:
        """Return the address of a trace in MLflow's pages; for a local database, the default address of `mlflow ui`."""
        server = self.uri if self.uri.startswith("http") else UI
        return (
            f"{without_credentials(server).rstrip('/')}/#/experiments/{self.experiment_id}/traces"
            f"?selectedEvaluationId={trace_id}"
        )

    def find_run(self, tags: Mapping[str, str], finished: bool) -> "Run | None":
        """Return the oldest run with these tags whose state is (not) FINISHED, as `finished` says."""
        conditions = [f"tags.`{name}` = '{value}'" for name, value in tags.items()]
        conditions.append(f"attributes.status {'=' if finished else '!='} 'FINISHED'")
        runs = self.client.search_runs(
            [self.experiment_id], " and ".join(conditions), order_by=["attributes.start_time ASC"], max_results=1
        )
        return runs[0] if runs else None

    def log_numbers(
        self, run_id: str, steps: Mapping[int, Mapping[str, float]], measured: Sequence[str | None] = ()
    ) -> None:
        """Log metrics by step, skipping values that the run already holds.

        `measured`: the model (None: of no model), the name and the digest of the dataset that it was measured on.
        """
        from mlflow.entities import Metric

        held, now = self._held(run_id), int(time.time() * 1000)
        missing = [
            Metric(name, value, now, step, *(*measured, run_id) if measured else ())
            for step, numbers in steps.items()
            for name, value in numbers.items()
            if (step, value) not in held.get(name, ())
        ]
        for start in range(0, len(missing), METRICS_PER_BATCH):
            self.client.log_batch(run_id, metrics=missing[start : start + METRICS_PER_BATCH])

    def log_params(self, run_id: str, values: Mapping[str, str]) -> None:
        """Log parameters; those that the run holds already must have the same values."""
        from mlflow.entities import Param

        params = [Param(name, value) for name, value in values.items()]
        for start in range(0, len(params), PARAMS_PER_BATCH):
            self.client.log_batch(run_id, params=params[start : start + PARAMS_PER_BATCH])

    def _held(self, run_id: str) -> dict[str, set[tuple[int, float]]]:
        names = self.client.get_run(run_id).data.metrics
        history = {name: self.client.get_metric_history(run_id, name) for name in names}
        return {name: {(metric.step, metric.value) for metric in metrics} for name, metrics in history.items()}


def open_store(config: LineageConfig, root: Path) -> Store:
    """Return the experiment in the store of MLFLOW_TRACKING_URI, else of `mlflow.db` in the project's root.

    Raises LineageError when the store cannot be reached.
    """
    _quieten()
    from mlflow import MlflowClient

    uri = tracking_uri(root)
    with explained(uri):
        # A SQLite store without a file would be in memory, and end with the process.
        if re.fullmatch(r"sqlite(\+\w+)?:(//)?(/((file:)?:memory:)?)?(\?.*)?", uri):
            raise LineageError(
                f"MLflow at {uri}: this URI names no file, so nothing would be kept; set "
                "MLFLOW_TRACKING_URI=sqlite:///mlflow.db, or unset it, which means the same"
            )
        if uri == _default_uri(root):
            _make_database(_database(root))
            _follow_move(_database(root), str(_artifact_location(uri, root)))
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = client.get_experiment_by_name(config.experiment)
        if experiment is not None:
            if experiment.lifecycle_stage == "deleted":
                store, number = without_credentials(uri), experiment.experiment_id
                raise LineageError(
                    f"MLflow at {store}: the experiment {experiment.name} was deleted; "
                    f"`MLFLOW_TRACKING_URI={shlex.quote(store)} mlflow experiments restore --experiment-id {number}` "
                    "brings it back, lineage.experiment in params.yaml names another"
                )
            if _KIND not in experiment.tags:  # made by somebody's hand, or by an older version
                client.set_experiment_tag(experiment.experiment_id, *_TRAINING)
            return Store(client, experiment.experiment_id, uri)
        made = client.create_experiment(config.experiment, _artifact_location(uri, root), dict([_TRAINING]))
        return Store(client, made, uri)


def tracking_uri(root: Path) -> str:
    """Return MLFLOW_TRACKING_URI, else the SQLite file `mlflow.db` of the project at `root`.

    A relative SQLite path is relative to the project: runs of a study, which work in their own folders, share the file.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI") or _default_uri(root)
    relative = re.fullmatch(r"sqlite:///([^/:?][^?]*)(\?.*)?", given)
    if relative is None or relative[1].startswith("file:"):
        return given
    path, options = _project_root(root) / relative[1], relative[2] or ""
    return _sqlite_uri(path) + (options.replace("?", "&", 1) if "?" in str(path) else options)


def store_exists(root: Path) -> bool:
    """Return whether there is a store to search: a server, or a database that an earlier record made."""
    return tracking_uri(root) != _default_uri(root) or _database(root).exists()


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn MLflow's exceptions into one LineageError that tells what to do."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        first, *rest = str(error).strip().splitlines()
        told = f"{first} {' '.join(rest).strip()}" if first.endswith(":") else first
        reason = _of_newer_mlflow(error) or without_credentials(told[:300])
        shown = error if without_credentials(str(error)) == str(error) else None  # Prefect keeps whole tracebacks
        raise LineageError(f"MLflow at {without_credentials(uri)}: {reason}; {_remedy(error, uri)}") from shown


def _of_newer_mlflow(error: Exception) -> str | None:
    """Return what is wrong where the store's schema is one that this MLflow does not know, whose advice is an upgrade.

    MLflow compares for equality, and cannot upgrade to what it does not know.
    """
    import mlflow.store.db_migrations as migrations

    found = re.search(r"out-of-date database schema \(found version (\w+)", str(error))
    if found is None or any((Path(migrations.__path__[0]) / "versions").glob(f"{found[1]}_*.py")):
        return None
    return f"a newer MLflow than {version('mlflow')} has written this store (its schema {found[1]} is unknown here)"


def _remedy(error: Exception, uri: str) -> str:
    """Return what to do about an error of MLflow's at a store."""
    if _of_newer_mlflow(error):
        return "use that MLflow here, or set MLFLOW_TRACKING_URI to another store"
    if isinstance(error, ImportError):
        return f"install {error.name or 'what is missing'} here, or set MLFLOW_TRACKING_URI to another store"
    if uri.startswith("http") and re.search(r"error code 40[13]\b", str(error)):
        return (
            "it asks who you are: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, "
            "to an account that may do this"
        )
    if uri.startswith("http"):
        return "start that server, or set MLFLOW_TRACKING_URI to another one"
    return "repair the store, or set MLFLOW_TRACKING_URI to another one"


def _default_uri(root: Path) -> str:
    return _sqlite_uri(_database(root))


def _sqlite_uri(path: Path) -> str:
    """Return the address of a SQLite file. SQLAlchemy ends a path at a question mark; SQLite's own form does not."""
    return f"sqlite+pysqlite:///file:{quote(str(path))}?uri=true" if "?" in str(path) else f"sqlite:///{path}"


def _database(root: Path) -> Path:
    return _project_root(root) / "mlflow.db"


def _make_database(path: Path) -> None:
    """Make MLflow's tables, unless the file exists. Make them elsewhere first: MLflow cannot use an unfinished file."""
    from mlflow import MlflowClient

    if path.exists():
        return
    hidden = path.parent / ".loopline"
    hidden.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mlflow-", dir=hidden) as folder:
        made = Path(folder) / path.name
        MlflowClient(tracking_uri=_sqlite_uri(made)).search_experiments(max_results=1)
        with FileLock(hidden / "mlflow.lock"):
            if not path.exists():  # else another process was faster, and may have recorded into its own by now
                made.rename(path)


def _artifact_location(uri: str, root: Path) -> str | None:
    """Return the folder for model files, next to the local database; None for a server, which has its own."""
    return (_project_root(root) / ARTIFACTS).as_uri() if uri.startswith("sqlite") else None


def _follow_move(database: Path, now: str) -> None:
    """Point a local store's addresses to where its checkout lies by now: MLflow keeps whole paths.

    `now`: the address of the folder `mlartifacts` beside it.
    """
    folder = database.parent / ARTIFACTS
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as file, file:  # MLflow itself explains damage
        found = file.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall()
        for (held,) in found if folder.is_dir() else ():
            if held != now and held.startswith("file:") and held.endswith(f"/{ARTIFACTS}"):
                for table, column in _ADDRESSES:
                    moved = f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?"
                    file.execute(moved, (now, len(held) + 1, len(held), held))


def _project_root(root: Path) -> Path:
    """Return `root`, or the project around a copy that `dvc exp run --temp` made in <project>/.dvc/ and will delete."""
    resolved = root.resolve()
    outside = [parent.parent for parent in resolved.parents if parent.name == ".dvc"]
    return outside[0] if outside else resolved


def _quieten() -> None:
    """Switch off telemetry and the migration log, and notice a server that is down in seconds instead of minutes."""
    import logging

    settings: dict[str, Any] = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "ERROR",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
