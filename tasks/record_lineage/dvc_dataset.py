"""An MLflow dataset source of type "dvc". Imports MLflow: import this module late."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.data.dataset_source import DatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.entities import DatasetInput


class DvcSource(DatasetSource):
    """An artifact as DVC knows it: its path in the repository, its md5 and the git revision of the dvc.lock."""

    def __init__(self, path: str, md5: str, rev: str) -> None:
        self.path = path
        self.md5 = md5
        self.rev = rev

    @staticmethod
    def _get_source_type() -> str:
        return "dvc"

    def load(self) -> str:
        """Fetch the artifact from the DVC remote if it is not here. Return its local path."""
        if not Path(self.path).exists():
            from dvc.repo import Repo

            with Repo() as repo:
                repo.pull([self.path])
        return self.path

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        return False

    @classmethod
    def _resolve(cls, raw_source: Any) -> "DvcSource":
        raise NotImplementedError("a DVC artifact is named by path, md5 and revision, not by one string")

    def to_dict(self) -> dict[str, str]:
        return {"path": self.path, "md5": self.md5, "rev": self.rev}

    @classmethod
    def from_dict(cls, source_dict: dict[str, str]) -> "DvcSource":
        return cls(**source_dict)


def dvc_inputs(artifacts: Mapping[str, str], rev: str) -> list[DatasetInput]:
    """Return MLflow dataset inputs of DVC artifacts (path to md5); the digest of each is DVC's md5."""
    datasets = [
        MetaDataset(DvcSource(path, md5, rev), name=path, digest=md5)  # type: ignore[abstract]
        for path, md5 in artifacts.items()
    ]
    return [DatasetInput(dataset._to_mlflow_entity()) for dataset in datasets]
