"""A stage runs with what version_stages recorded, or not at all, and states what it wrote.

DVC writes the digests in data/stage_versions.json next to a stage's results. So its parameters come from
data/manifest.json, which holds what those digests stand for: params.yaml may be edited for the next run meanwhile. And
the code must be the recorded code, on disk and in this process, which may have imported it long ago.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.dag.file_signatures import Signature, changed_files, imports_began, signatures, touched_since
from flows.dag.stage_code import InUse, stage_packages
from flows.dag.stages import Stage
from flows.dag.version_stages import CODE, ChangedMeanwhile, changed_knobs, recorded_version
from tasks.core.config.params import Params, ParamsError, load_params, read_yaml
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.lineage.integrity import dvc_md5
from tasks.core.lineage.machine import machine_kind
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, digest
from tasks.core.records.layout import Layout, holds_clocks
from tasks.core.records.run_manifest import Attestation, RunManifest, StageVersion, StageVersions

_log = logging.getLogger(__name__)


class NotAsRecorded(RuntimeError):  # noqa: N818
    """The code that a stage would run, or has run, is not what its recorded version stands for."""


@contextmanager
def as_recorded(stage: Stage, params: Params, layout: Layout, cache: ProcessCache) -> Iterator[StageVersion]:
    """Yield the recorded version of `stage`, whose code is held against the record before and after the block.

    Logs which knobs of the stage have another value in params.yaml by now. Raises NotAsRecorded and ArtifactError.
    """
    manifest = read_document(layout.manifest, RunManifest)
    version = _version(stage, manifest, params, layout)
    files = _files(stage, manifest, params)
    before = signatures(files.values())
    _check_disk(stage, manifest, files, before, cache)
    loaded = _loaded(files.values())
    fine: dict[Path, Signature] = cache.get("code_as_imported", None, dict)  # whatever the clock says by now
    if touched := [file for file in touched_since(imports_began(), loaded) if fine.get(file) != before[file]]:
        raise _refusal(touched, "was edited after this process had started")
    fine |= {file: before[file] for file in loaded}
    _log_edited_knobs(stage, manifest, params, layout)
    yield version
    # What this process had imported before is what it ran, whatever lies on disk by now.
    if touched := [file for file in changed_files(before) if file not in loaded]:
        raise _refusal(touched, f"was edited while {stage.name} ran")
    if _version(stage, manifest, params, layout) != version:
        raise NotAsRecorded(f"{layout.stage_versions} was changed while {stage.name} ran; run `dvc repro` again")


def recorded_digest(stage: Stage, layout: Layout) -> str | None:
    """Return the recorded version of `stage` as 32 hexadecimal digits; None for the stage that records them.

    Raises ArtifactError where nothing is recorded yet.
    """
    if stage.name == "version_stages":
        return None
    versions = read_document(layout.stage_versions, StageVersions).root
    return versions[stage.name].digest if stage.name in versions else None


@contextmanager
def unedited(params_file: Path) -> Iterator[None]:
    """Raise ChangedMeanwhile if the file is edited between the beginning and the end of the block."""
    before = signatures([params_file])
    yield
    if changed_files(before):
        raise ChangedMeanwhile(f"{params_file.name} was edited while it was read; run the same command again")


def _version(stage: Stage, manifest: RunManifest, params: Params, layout: Layout) -> StageVersion:
    versions = read_document(layout.stage_versions, StageVersions).root
    if stage.name not in versions or stage.name not in manifest.stages:
        raise ArtifactError(f"{layout.stage_versions}: has no version of {stage.name}; run `dvc repro`")
    if versions[stage.name] != recorded_version(manifest, stage, params):
        raise ArtifactError(
            f"{layout.stage_versions}: {stage.name} has another version than {layout.manifest.name}; run "
            "`dvc repro --force --single-item version_stages`, then `dvc repro`"
        )
    return versions[stage.name]


def _files(stage: Stage, manifest: RunManifest, params: Params) -> dict[str, Path]:
    """Return the files that the recorded version of `stage` stands for, by name, where they are now."""
    packaged = stage_packages(InUse.by(params))
    return {name: packaged.get(name, CODE / name) for name in manifest.stages[stage.name]}


def _check_disk(
    stage: Stage, manifest: RunManifest, files: dict[str, Path], seen: dict[Path, Signature], cache: ProcessCache
) -> None:
    """Raise NotAsRecorded if a file of code has another content than recorded. Unchanged files are read once."""
    known: dict[Path, tuple[Signature, str]] = cache.get("code_digests", None, dict)
    for name, file in files.items():
        if (signature := seen[file]) is None:
            raise _refusal([file], "is gone")
        if file not in known or known[file][0] != signature:
            known[file] = (signature, digest(file))
        if known[file][1] != manifest.files[name]:
            raise _refusal([file], f"is not the code that the version of {stage.name} stands for")


def _refusal(files: Iterable[Path], what: str) -> NotAsRecorded:
    first, *others = [file.relative_to(CODE).as_posix() if CODE in file.parents else str(file) for file in files]
    more = f" (and {len(others)} more)" if others else ""
    return NotAsRecorded(
        f"{first}{more} {what}, so its results would be recorded as those of other code; run the same command again "
        "(if that changes nothing: `dvc repro --force --single-item version_stages` first)"
    )


def _loaded(files: Iterable[Path]) -> set[Path]:
    """Return those of `files` that this process has imported as modules."""
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file for file in files if str(file) in imported}


def _log_edited_knobs(stage: Stage, manifest: RunManifest, params: Params, layout: Layout) -> None:
    """Tell who edits params.yaml during a run, or asks for one stage alone, that the edit has not arrived yet."""
    try:
        if digest(layout.params) == manifest.params_file:
            return
        edited = [*changed_knobs(stage, params, load_params(layout.params))]
    except (OSError, ParamsError):
        return  # in the middle of an edit
    for line in edited:
        _log.warning("%s runs as recorded, params.yaml has changed since: %s; `dvc repro` takes it", stage.name, line)


def write_attestation(stage: Stage, key: str, version: StageVersion, layout: Layout) -> None:
    """Write what `stage` states about its outputs as they lie there, for those that dvc.yaml names."""
    own = layout.attestation(stage.name, key)
    outs = {
        path: dvc_md5(layout.root / path)
        for path in _outs(layout.root / "dvc.yaml", stage.name, key)
        if not holds_clocks(path) and layout.root / path != own and (layout.root / path).exists()
    }
    said = Attestation(stage=stage.name, key=key, version=version, outs=outs, machine=machine_kind())
    write_document(own, said)


def _outs(dvc_yaml: Path, stage: str, key: str) -> Iterator[str]:
    """Yield the paths of the outputs of a stage, whose templates use the key."""
    definitions: dict[str, Any] = read_yaml(dvc_yaml)["stages"] if dvc_yaml.exists() else {}  # no project of DVC's
    found = definitions.get(stage, {})
    definition = found.get("do", found)
    for out in (*definition.get("outs", ()), *definition.get("metrics", ())):
        path = next(iter(out)) if isinstance(out, dict) else out
        yield path.replace("${key}", key).replace("${item}", key)
