"""Folders that are slow to make and that tests of several processes share, kept under .loopline/."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from tasks.core.records.files import replacing

KEPT = Path(__file__).resolve().parents[1] / ".loopline" / "tests"


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name`, for reading only. The first process that asks makes it, and others wait."""
    folder = KEPT / name
    with FileLock(KEPT / f"{name}.lock"):
        if not folder.exists():
            with replacing(folder) as temporary:
                make(temporary)
    return folder


def empty_mlflow_store() -> Path:
    """Return a database with MLflow's tables and no record, for copying: to make one takes a core 1.5 s."""

    def make(folder: Path) -> None:
        from mlflow import MlflowClient

        folder.mkdir()
        MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db").search_experiments(max_results=1)

    return made_once(f"mlflow-{version('mlflow')}", make) / "mlflow.db"
