"""The selected policy as a version in the model registry, with tags that lead back to the exact artifacts."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.config.engine import SAMPLING_ENGINES
from tasks.core.config.params import Params
from tasks.core.lineage.mlflow_store import Store
from tasks.core.policies.digests import MODEL_CARD

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

WriteFiles = Callable[[Path, str], None]
"""Writes the files of a version into a folder, given the id of the logged model."""
_MOST_CHARS = 5000
"""Longest description in MLflow's tables."""
_REST = f"\n\n(the rest: {MODEL_CARD} among the version's files)\n"
CHALLENGER, CHAMPION = "challenger", "champion"


def scores_own_weights(params: Params) -> bool:
    """Whether the scores are those of the run's weights: not where a script recited or a model behind an API played."""
    return params.engine.name in SAMPLING_ENGINES


def log_policy(store: Store, run_id: str, step: int, write: WriteFiles, tags: Mapping[str, str]) -> "LoggedModel":
    """The logged model of this run: found again, or made from the files that `write` writes. It ends READY."""
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
    """The registry version made from this run: found again, or created and called challenger.

    Its description is the model card in the files of `model`. `ancestors` are the md5s of the checkpoints that this
    policy was trained on from, nearest first: the version made from one of them is its parent.
    """
    client = store.client
    found = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    if found:
        return found[0]
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
    """The model card, as long as MLflow's databases take a description."""
    from mlflow.artifacts import download_artifacts

    with tempfile.TemporaryDirectory() as folder:
        address, uri = f"{model.artifact_location.rstrip('/')}/{MODEL_CARD}", store.client.tracking_uri
        card = Path(download_artifacts(artifact_uri=address, dst_path=folder, tracking_uri=uri)).read_text("utf-8")
    return card if len(card) <= _MOST_CHARS else card[: _MOST_CHARS - len(_REST)] + _REST


def _parent(store: Store, name: str, ancestors: Iterable[str]) -> str:
    """The newest version of the nearest ancestor; "none" where training began at the base."""
    versions = store.client.search_model_versions(f"name = '{name}'")
    made = {version.tags.get("dvc_md5"): int(version.version) for version in sorted(versions, key=_number)}
    return next((str(made[md5]) for md5 in ancestors if md5 in made), "none")


def _number(version: "ModelVersion") -> int:
    return int(version.version)
