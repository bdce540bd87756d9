"""The versions of a registered model: finding them by number or alias, fetching their files, moving aliases."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks.core.lineage.mlflow_store import Store
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.files import ArtifactError
from tasks.core.registry.version_evaluation import FOLDER, VersionEvaluation, read_evaluation, scored_policy


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
                found, scored = read_evaluation(folder), scored_policy(folder)
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

    def move_alias(self, alias: str, version: Version) -> None:
        """Point `alias` to this version only."""
        self.store.client.set_registered_model_alias(self.name, alias, str(version.number))

    def drop_alias(self, alias: str) -> None:
        """Remove `alias`."""
        self.store.client.delete_registered_model_alias(self.name, alias)


def _require_same_policy(version: Version, part: str, digest: str) -> None:
    """Raise ArtifactError where a part of a version is of another policy than its tags say."""
    if digest != (told := version.tag("adapter_digest")):
        raise ArtifactError(
            f"version {version.number}: its {part} are of the policy {digest[:12]}..., its tags say {told[:12]}...; "
            "record the run anew"
        )
