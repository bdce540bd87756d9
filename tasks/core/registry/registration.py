"""Registering the selected policy as a version in the model registry, with tags that lead to the exact artifacts."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.config.params import Params
from tasks.core.lineage.mlflow_store import Store
from tasks.core.policies.checkpoint_files import MODEL_CARD

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

WriteFiles = Callable[[Path, str], None]
"""Writes a version's files into a folder, given the id of the logged model."""
_MOST_CHARS = 5000
"""Longest description that MLflow's tables can hold."""
_REST = f"\n\n(the rest: {MODEL_CARD} among the version's files)\n"
CHALLENGER, CHAMPION = "challenger", "champion"


def scores_own_weights(params: Params) -> bool:
    """Return whether the run's weights were scored, instead of a reciting script or a model behind an API."""
    return bool(params.engine.kind.samples_policy)


def log_policy(store: Store, run_id: str, step: int, write: WriteFiles, tags: Mapping[str, str]) -> "LoggedModel":
    """Return this run's logged model: the existing one, or a new one from the files that `write` writes.

    It is READY.
    """
    from mlflow.entities import LoggedModelOutput

    for model in store.client.search_logged_models([store.experiment_id], f"source_run_id = '{run_id}'"):
        if str(model.status) == "READY":
            return model
    model = store.client.create_logged_model(store.experiment_id, name="policy", source_run_id=run_id, tags=dict(tags))
    with tempfile.TemporaryDirectory() as staging:
        write(Path(staging), model.model_id)
        store.client.log_model_artifacts(model.model_id, staging)
    store.client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step)])
    return store.client.finalize_logged_model(model.model_id, "READY")


def register(
    store: Store, name: str, run_id: str, model: "LoggedModel", tags: Mapping[str, str], ancestors: Iterable[str]
) -> "ModelVersion":
    """Return the registry version of this run: the existing one, or a new one with the alias challenger.

    Its description is the model card in the files of `model`. `ancestors` are the md5s of the checkpoints from which
    this policy was trained, nearest first: the version made from one of them is its parent.
    """
    client = store.client
    versions = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    if versions:
        return versions[0]
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    tags = {**tags, "parent_version": _parent(store, name, ancestors)}
    version = client.create_model_version(
        name,
        source=model.artifact_location,
        run_id=run_id,
        tags=tags,
        description=_card(store, model),
        model_id=model.model_id,
    )
    client.set_registered_model_alias(name, CHALLENGER, version.version)
    return version


def _card(store: Store, model: "LoggedModel") -> str:
    """Return the model card, cut to the length of a description in MLflow's databases."""
    from mlflow.artifacts import download_artifacts

    with tempfile.TemporaryDirectory() as folder:
        address, uri = f"{model.artifact_location.rstrip('/')}/{MODEL_CARD}", store.client.tracking_uri
        card = Path(download_artifacts(artifact_uri=address, dst_path=folder, tracking_uri=uri)).read_text("utf-8")
    return card if len(card) <= _MOST_CHARS else card[: _MOST_CHARS - len(_REST)] + _REST


def _parent(store: Store, name: str, ancestors: Iterable[str]) -> str:
    """Return the newest version of the nearest ancestor; "none" if training began from the base."""
    versions = store.client.search_model_versions(f"name = '{name}'")
    made = {version.tags.get("dvc_md5"): int(version.version) for version in sorted(versions, key=_number)}
    return next((str(made[md5]) for md5 in ancestors if md5 in made), "none")


def _number(version: "ModelVersion") -> int:
    return int(version.version)
