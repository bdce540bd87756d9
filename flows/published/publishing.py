"""A finished run as a published one, made anew in a folder of its own or as it lies in a project."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.dag.new_project import make_project
from flows.dag.stages import STAGES, stage_label
from flows.dag.version_stages import changed_code
from flows.params_file import write_params
from flows.profile_stack import stacked
from flows.published.published_run import PUBLISHED, write_published
from tasks.core.lineage.dvc_lock import lock_of, whole_lock
from tasks.core.lineage.integrity import broken_artifact
from tasks.core.lineage.machine import PORTABLE
from tasks.core.lineage.trace import broken_joints, disproved
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import Attestation, RunManifest, recorded_params

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
