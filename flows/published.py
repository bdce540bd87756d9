"""Published runs, docs/results/published/NAME: made anew, written with their digests, and held beside others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.dag.new_project import make_project
from flows.dag.stages import STAGES, stage_label
from flows.dag.version_stages import changed_code
from flows.params_file import write_params
from flows.profile_stack import stacked
from tasks.core.lineage.dvc_lock import DvcLock, lock_of, whole_lock
from tasks.core.lineage.integrity import broken_artifact, dvc_md5
from tasks.core.lineage.machine import PORTABLE
from tasks.core.lineage.trace import broken_joints, disproved
from tasks.core.records.documents import dotted, read_document
from tasks.core.records.files import ArtifactError, digest, replacing
from tasks.core.records.layout import Layout, holds_clocks
from tasks.core.records.run_manifest import Attestation, RunManifest, of_other_knobs, recorded_params

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


_ANEW = Path(".loopline") / "anew"
_OF_ITS_OWN = {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "DVC_EXP_NAME": ""}


def publish(root: Path, name: str, *, here: bool) -> Path:
    """Publish the run of `root`, or else one of the profile `name` that is made anew; return the folder.

    Raises ArtifactError where the run is not whole, its files are not what its stages wrote, or the code here is not
    the code that it ran; UnknownProfile.
    """
    project = root if here else run_anew(root, name, stacked([name]))
    if faults := [*faults_of(project)]:
        raise ArtifactError("\n".join(["not published:", *faults]))
    write_published(project, root / PUBLISHED / name)
    if not here:
        shutil.rmtree(project)
    return root / PUBLISHED / name


def run_anew(root: Path, name: str, content: dict[str, Any]) -> Path:
    """Run the pipeline with these parameters, the code of `root` and portable bits; return the folder.

    Raises ArtifactError where it fails, and ParamsError.
    """
    folder = root / _ANEW / name
    shutil.rmtree(folder, ignore_errors=True)
    make_project(root, folder)
    write_params(folder / "params.yaml", content)
    log = folder / "run.log"
    print(f"{name}: runs anew with portable bits, as {log} tells", file=sys.stderr)
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "flows.cli", "run", "--without-prefect"]
        variables = {**os.environ, **PORTABLE, **_OF_ITS_OWN, "PYTHONPATH": str(folder)}
        done = subprocess.run(command, cwd=folder, env=variables, stdout=stream, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = [*log.read_text(encoding="utf-8", errors="replace").splitlines(), ""][-2]
        raise ArtifactError(f"{log}: the run failed: {last}")
    return folder


def faults_of(root: Path) -> Iterator[str]:
    """Yield why the run of `root` can't be published. Raises ArtifactError and ParamsError."""
    layout, params = Layout(root), recorded_params(Layout(root))
    lock = lock_of(root, params, side_tasks=True)
    names = {stage.name for stage in lock.stages}
    for label in (stage_label(stage.name, key) for stage in STAGES for key in stage.keys(params)):
        if label not in names:
            yield f"{label} did not run here yet; `loopline run` or `dvc repro` runs what is left"
    for stage in whole_lock(root / "dvc.lock").stages:
        if stage.name not in names:
            yield f"{stage.name} is of a run before, and dvc.lock still has it; publish from a fresh clone"
    yield from changed_code(lock.stages, params, root)
    for path, md5 in lock.artifacts.items():
        yield from broken_artifact(root, None, path, md5)
    yield from broken_joints(lock, [*lock.stages])
    yield from disproved(lock.stages, layout)
    machine = read_document(layout.manifest, RunManifest).machine
    for stage in lock.stages:
        file = layout.attestation(stage.task, stage.key)
        if file.exists() and (ran_on := read_document(file, Attestation).machine) != machine:
            yield f"{stage.name} ran on {ran_on}, the run was begun on {machine}"


_NAMED = 4
"""Names in one line."""


def verify(run: PublishedRun, root: Path) -> tuple[list[str], bool]:
    """Compare the run in the project `root` with a published one: in lines, and whether all its bytes are the same.

    Raises ArtifactError and ParamsError.
    """
    params = recorded_params(Layout(root))
    lock = lock_of(root, params, side_tasks=True)
    for line in of_other_knobs(Layout(root), ((stage.task, stage.key) for stage in lock.stages)):
        raise ArtifactError(line)
    here = artifacts_that_count(lock)
    differing = [
        f"  {stage}: {path}{why}"
        for path, (stage, _) in (run.artifacts | here).items()
        if (why := _difference(root / path, run.artifacts.get(path), path in here)) is not None
    ]
    number = len(run.artifacts | here)
    notes = [*_notes(read_document(Layout(root).manifest, RunManifest), run.manifest)]
    if not differing:
        about = f" ({'; '.join(notes)})" if notes else ""
        return [f"all {number} artifacts have the published bytes{about}"], True
    first = f"{number - len(differing)} of {number} artifacts have the published bytes; these differ:"
    return [first, *differing, *notes], False


def _difference(file: Path, published: tuple[str, str] | None, ran: bool) -> str | None:
    """Return what to say of an artifact that has not the published bytes; None of one that does."""
    if published is None:
        return " (the published run has none)"
    if not ran or not file.exists():
        return " (not here)"
    return None if dvc_md5(file) == published[1] else ""


def _notes(here: RunManifest, published: RunManifest) -> Iterator[str]:
    """Yield in what machine, packages, knobs and code are not the published ones."""
    machines = ({"machine": each.machine} for each in (here, published))
    knobs = (
        dotted({name: value for name, value in each.params.items() if name != "dag"}) for each in (here, published)
    )
    yield from _differing("machine", *machines)
    yield from _differing("packages", here.libraries, published.libraries)
    yield from _differing("knobs", *knobs)
    names = sorted({*here.files, *published.files})
    if files := [name for name in names if here.files.get(name) != published.files.get(name)]:
        yield f"code: {_shortened(files)}"


def _differing(what: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    differing = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
    if differing:
        named = [f"{name} {mine.get(name)} here, {theirs.get(name)} published" for name in differing]
        yield f"{what}: {_shortened(named)}"


def _shortened(listed: list[str]) -> str:
    return ", ".join(listed if len(listed) <= _NAMED else [*listed[:_NAMED], f"and {len(listed) - _NAMED} more"])
