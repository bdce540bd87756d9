"""The versions of a registered model: registered, found by number or alias, their files and stored evaluations."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tasks.core.config.params import Params
from tasks.core.config.splits import TEST_SPLITS, Split
from tasks.core.evaluation.scored_rows import outcomes_by_policy
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.lineage.mlflow_store import Store
from tasks.core.lineage.params_and_metrics import flat_params
from tasks.core.policies.checkpoint_files import MODEL_CARD, policy_digest
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, read_json, write_json
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import BASE_POLICY, OUTCOMES, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import Behaviour, MetricScore, Scores
from tasks.core.records.tables import read_table, write_table

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

FOLDER = "evaluation"


@dataclass(frozen=True)
class VersionEvaluation:
    """The evaluation of one version."""

    params: dict[str, str]
    """By dotted name, as text: the code of another version may have had other parameters."""
    outcomes: dict[tuple[str, str], list[Outcome]]
    """By split and policy ("base" or "selected")."""
    behaviour: dict[Split, Behaviour]
    """Behaviour of the selected policy, by test split."""
    own: dict[Split, MetricScore] = field(default_factory=dict)
    """The selected policy's score by the world's own metric, if the world has one."""


def write_evaluation(folder: Path, layout: Layout, params: Params, base: str, selected: str) -> None:
    """Write the evaluation of a finished pipeline; `base` and `selected` are iteration keys.

    Raises ArtifactError when an artifact is missing or damaged.
    """
    tables = [
        _dev_outcomes(layout, BASE_POLICY, base),
        _dev_outcomes(layout, SELECTED_POLICY, selected),
        *(read_table(layout.score_rollouts(split), SCORED_ROLLOUTS) for split in TEST_SPLITS),
    ]
    write_table(folder / "outcomes.parquet", pa.concat_tables(t.select(OUTCOMES.names) for t in tables), OUTCOMES)
    for split in TEST_SPLITS:
        write_document(folder / f"{split}.json", read_document(layout.score(split), Scores))
    write_json(folder / "params.json", flat_params(params))


def read_evaluation(folder: Path) -> VersionEvaluation:
    """Read an evaluation. Raises ArtifactError when a file is missing or damaged."""
    scores = {split: read_document(folder / f"{split}.json", Scores) for split in TEST_SPLITS}
    behaviour = {split: split_scores.behaviour.selected for split, split_scores in scores.items()}
    own_metric: dict[Split, MetricScore] = {
        split: split_scores.own for split, split_scores in scores.items() if split_scores.own is not None
    }
    table = read_table(folder / "outcomes.parquet", OUTCOMES)
    params: dict[str, str] = read_json(folder / "params.json")
    return VersionEvaluation(params, outcomes_by_policy(table.to_pylist()), behaviour, own_metric)


def _dev_outcomes(layout: Layout, policy: str, key: str) -> pa.Table:
    table = read_table(layout.evaluation_rollouts(key), SCORED_ROLLOUTS)
    index = table.schema.get_field_index("policy")
    return table.set_column(index, SCORED_ROLLOUTS.field("policy"), pa.array([policy] * len(table), pa.string()))


class UnknownVersion(ValueError):  # noqa: N818
    """The registered model has no version with this number or alias; the message lists the existing versions."""


@dataclass(frozen=True)
class Version:
    """A version, as the registry describes it."""

    number: int
    aliases: tuple[str, ...]
    tags: Mapping[str, str]
    created_ms: int
    """Milliseconds since 1970 (UTC)."""
    source: str
    """Address of its files, from which MLflow can download."""

    def tag(self, name: str) -> str:
        """Return a tag. Raises ArtifactError for a version that loopline did not record."""
        if name not in self.tags:
            raise ArtifactError(f"version {self.number}: has no tag {name}, so no run of loopline recorded it")
        return self.tags[name]


@dataclass(frozen=True)
class Registry:
    """The registered model `name` in a store."""

    store: Store
    name: str

    @cached_property
    def versions(self) -> list[Version]:
        """All versions, oldest first; [] for a model that was never registered."""
        client = self.store.client
        if not (models := client.search_registered_models(f"name = '{self.name}'")):
            return []
        # A search returns no aliases, and gives numbers as text or integers, depending on the store.
        aliases = {alias: int(number) for alias, number in client.get_registered_model(models[0].name).aliases.items()}
        listed = [
            Version(
                int(version.version),
                tuple(sorted(alias for alias, number in aliases.items() if number == int(version.version))),
                version.tags,
                version.creation_timestamp,
                str(version.source),
            )
            for version in client.search_model_versions(f"name = '{self.name}'")
        ]
        return sorted(listed, key=lambda version: version.number)

    def find(self, name: str) -> Version:
        """Return the version with this number or alias. Raises UnknownVersion."""
        for version in self.versions:
            if name == str(version.number) or name in version.aliases:
                return version
        names = [str(version.number) for version in self.versions]
        names += [alias for version in self.versions for alias in version.aliases]
        known = f"there are: {', '.join(names)}" if names else "it has no versions; run the pipeline to its end"
        raise UnknownVersion(f"{self.name} has no version {name!r}; {known}")

    def evaluation(self, version: Version) -> VersionEvaluation:
        """Return the evaluation stored with a version.

        Raises ArtifactError when it has none that can be read, or one of another policy.
        """
        version.tag("adapter_digest")  # one that was registered by hand has no evaluation either
        with self.files(version, FOLDER) as folder:
            try:
                found = read_evaluation(folder)
                scored = read_document(folder / f"{TEST_SPLITS[0]}.json", Scores).adapter_digest
            except ArtifactError as error:
                raise ArtifactError(
                    f"version {version.number} of {self.name} has no evaluation that this code can read; `loopline "
                    f"score models:/{self.name}/{version.number}` scores it again\n{error}"
                ) from None
        _require_same_policy(version, "scores", scored)
        return found

    @contextmanager
    def files(self, version: Version, part: str = "") -> Iterator[Path]:
        """Download the version's files, or its folder `part`, to a local folder that exists until the block ends."""
        from mlflow.artifacts import download_artifacts

        address = f"{version.source.rstrip('/')}/{part}".rstrip("/")
        with tempfile.TemporaryDirectory() as folder:
            uri = self.store.client.tracking_uri
            yield Path(download_artifacts(artifact_uri=address, dst_path=folder, tracking_uri=uri))

    @contextmanager
    def weights(self, version: Version) -> Iterator[Path]:
        """Download all files of the version. Raises ArtifactError where the weights are not those of its tags."""
        with self.files(version) as folder:
            _require_same_policy(version, "weights", policy_digest(folder))
            yield folder


def _require_same_policy(version: Version, part: str, digest: str) -> None:
    """Raise ArtifactError where a part of a version is of another policy than its tags say."""
    if digest != (told := version.tag("adapter_digest")):
        raise ArtifactError(
            f"version {version.number}: its {part} are of the policy {digest[:12]}..., its tags say {told[:12]}...; "
            "record the run anew"
        )


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
    made = {
        version.tags.get("dvc_md5"): int(version.version)
        for version in sorted(versions, key=lambda one: int(one.version))
    }
    return next((str(made[md5]) for md5 in ancestors if md5 in made), "none")
