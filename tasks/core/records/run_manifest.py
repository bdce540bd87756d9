"""The versions of stages, and the record of the parameters and the code that they ran with."""

import hashlib
from collections.abc import Iterable, Iterator

from pydantic import Field, JsonValue, RootModel

from tasks.core.config.params import Params, ParamsError, params_of_knobs
from tasks.core.records.documents import Digest, Document, IterationKey, read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout


class StageVersion(Document):
    """The code that a stage runs and the parameters that it reads; DVC compares the digests of both."""

    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """First digits of a SHA-256 over the files that it runs."""
    params: str = Field(pattern=r"^[0-9a-f]{16}$")
    """The same over the values of its knobs in data/manifest.json."""

    @property
    def digest(self) -> str:
        """Both in one: 32 hexadecimal digits."""
        return self.code + self.params


class StageVersions(RootModel[dict[str, StageVersion]]):
    """data/stage_versions.json: the version of every stage but the one that writes them, by its name."""


def digest_of_code(files: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256, in hexadecimal, over the names of files and their SHA-256, in this order."""
    total = hashlib.sha256()
    for name, content in files:
        total.update(name.encode() + b"\0" + bytes.fromhex(content))
    return total.hexdigest()


class RunManifest(Document):
    """data/manifest.json: the parameters and the code that version_stages saw, with which all other stages run."""

    params: dict[str, JsonValue]
    """All parameters, defaults and derived maps included."""
    params_file: Digest
    """SHA-256 of the bytes of params.yaml."""
    files: dict[str, Digest]
    """SHA-256 of each file of code that some stage runs, by its path relative to the project's root."""
    stages: dict[str, tuple[str, ...]]
    """The files that each stage runs."""
    machine: str = ""
    """The kind of machine (tasks/core/lineage/machine.py); "" in a run of an older version."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Versions of the packages that loopline needs."""

    def code_of(self, stage: str) -> str:
        """Return the SHA-256, in hexadecimal, over names and contents of the files that `stage` runs."""
        return digest_of_code((name, self.files[name]) for name in self.stages[stage])

    @property
    def packages(self) -> tuple[str, ...]:
        """The installed packages among the code, "loopline-key-value==0.1.0"."""
        homes = {name.partition("/")[0] for name in self.files}
        return tuple(sorted(home for home in homes if "==" in home))


class Attestation(Document):
    """data/attestations/STAGE/KEY.json: the statement of a stage about what it wrote, and with what.

    It lies beside the artifacts and not in them: a digest of code in rollouts would make every stage behind them run
    again after an edit that changes no rollout.
    """

    stage: str
    key: str
    version: StageVersion
    """Digests of the code and the parameters that the process really ran with."""
    outs: dict[str, str]
    """DVC's md5 of each output, by its path relative to the project's root, except those that hold wall-clock times."""
    machine: str = ""
    """The kind of machine that it ran on."""


class PolicyFolder(Document):
    """A policy's folder, with DVC's md5 of it."""

    path: str
    md5: str


class LineageRecord(Document):
    """data/lineage.json: a finished run, identified by what it was made from, and not by MLflow's random id."""

    pipeline_digest: Digest
    """`DvcLock.digest`; the run's tag in MLflow."""
    params_digest: Digest
    iteration: IterationKey
    adapter_digest: Digest
    policy: PolicyFolder
    """The selected policy."""
    experiment: str
    registered_model: str | None
    """None where the policy was not registered."""
    task_versions: dict[str, str]
    """Digests of the code and the parameters of each task."""


_OF_ANOTHER = (
    "another version of loopline may have made this run: check out that version's commit, or make the run anew with "
    "`loopline run`"
)


def recorded_params(layout: Layout) -> Params:
    """Return the parameters in data/manifest.json.

    Raises ArtifactError if the file is missing or damaged, or another version of loopline wrote it.
    """
    try:
        return params_of_knobs(read_document(layout.manifest, RunManifest).params, str(layout.manifest))
    except (ArtifactError, ParamsError) as error:
        if not layout.manifest.exists():
            raise
        raise ArtifactError(f"{str(error).splitlines()[0]}; {_OF_ANOTHER}") from None


def of_other_knobs(layout: Layout, stages: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield those of `stages`, by name and key, that made their artifacts with other knobs than `recorded_params`.

    So it is where a run with other knobs was begun, and stopped. A stage that attests nothing is let through. Raises
    ArtifactError.
    """
    if not layout.stage_versions.exists():
        return
    versions = read_document(layout.stage_versions, StageVersions).root
    for stage, key in stages:
        file = layout.attestation(stage, key)
        if not file.exists() or stage not in versions:
            continue
        if read_document(file, Attestation).version.params != versions[stage].params:
            yield (
                f"{stage}{key and f'@{key}'}: ran with other knobs than {layout.manifest} has, which is of a run that "
                "was begun since; `loopline run` goes on with that one"
            )
