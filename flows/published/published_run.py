"""A published run, docs/results/published/NAME: its dvc.lock, its data/manifest.json, and the digests of both."""

import shutil
from pathlib import Path

from tasks.core.lineage.dvc_lock import DvcLock, whole_lock
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError, digest, replacing
from tasks.core.records.layout import Layout, holds_clocks
from tasks.core.records.run_manifest import RunManifest

PUBLISHED = Path("docs") / "results" / "published"
"""The folder of published runs, in the checkout."""
_LOCK, _MANIFEST, _SUMS = "dvc.lock", "manifest.json", "SHA256SUMS"
_HERE = Layout(Path())
_OF_HOW = {path.as_posix() for path in (_HERE.manifest, _HERE.stage_versions, _HERE.lineage)}


class UnknownRun(ValueError):  # noqa: N818
    """No published run is where one was asked for."""


class PublishedRun:
    """A published run as it lies in its folder."""

    def __init__(self, folder: Path) -> None:
        """Read it. Raises ArtifactError where a file is missing or not as it was published."""
        if not (folder / _SUMS).is_file() or (folder / _SUMS).read_text(encoding="utf-8") != _sums(folder):
            raise ArtifactError(f"{folder}: not as it was published; restore it from git, or publish anew")
        self.name = folder.name
        self.manifest = read_document(folder / _MANIFEST, RunManifest)
        self.artifacts = artifacts_that_count(whole_lock(folder / _LOCK))


def find_run(name: str, root: Path) -> PublishedRun:
    """Return a published run by its name, its folder or its dvc.lock. Raises UnknownRun and ArtifactError."""
    asked = Path(name)
    for folder in (root / PUBLISHED / name, asked.parent if asked.name == _LOCK else asked):
        if folder.is_dir():
            return PublishedRun(folder)
    known = ", ".join(sorted(path.name for path in (root / PUBLISHED).glob("*"))) or "none"
    raise UnknownRun(f"{name}: no published run; those of {PUBLISHED} are: {known}")


def write_published(root: Path, folder: Path) -> None:
    """Publish the run in the project `root`."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        shutil.copyfile(root / "dvc.lock", temporary / _LOCK)
        shutil.copyfile(Layout(root).manifest, temporary / _MANIFEST)
        (temporary / _SUMS).write_text(_sums(temporary), encoding="utf-8")


def artifacts_that_count(lock: DvcLock) -> dict[str, tuple[str, str]]:
    """Return stage and md5 of every artifact, by its path, without those that say only how it was made, not what."""
    return {
        path: (stage.name, md5)
        for stage in lock.stages
        for path, md5 in stage.outs.items()
        if not (holds_clocks(path) or path in _OF_HOW or path.startswith("data/attestations/"))
    }


def _sums(folder: Path) -> str:
    """Return what `sha256sum` prints of the files; "" where one is missing."""
    files = [folder / name for name in (_LOCK, _MANIFEST)]
    return "".join(f"{digest(file)}  {file.name}\n" for file in files) if all(map(Path.is_file, files)) else ""
