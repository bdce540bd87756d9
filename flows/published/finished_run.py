"""The finished run of a checkout: its digests, and what it was made with."""

from collections.abc import Iterator
from pathlib import Path

from flows.dag.stages import STAGES, find_stage, stage_label
from flows.published.machine import machine_facts, packages
from flows.published.records import RunDigests, RunFacts, StageDigests
from tasks.core.config.params import Params
from tasks.core.lineage.dvc_lock import LockedStage, lock_of
from tasks.core.lineage.git_state import git_state
from tasks.core.records.content import ContentDigest, content_digest
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import StageVersions, recorded_params

_PLACES = {stage.name: place for place, stage in enumerate(STAGES)}
_BY_ITERATION = [place for place, stage in enumerate(STAGES) if stage.each not in ("", "split")]


def run_digests(root: Path) -> RunDigests:
    """Return the digests of the finished run in `root`. Raises ArtifactError where a stage or a file is missing."""
    each = ((stage.name, dict(artifact_digests(root, stage))) for stage in finished_stages(root))
    return RunDigests(stages=tuple(StageDigests(name=name, artifacts=outs) for name, outs in each if outs))


def run_facts(root: Path) -> RunFacts:
    """Return what the finished run in `root` was made with. Raises ArtifactError and ParamsError."""
    layout = Layout(root)
    knobs = recorded_params(layout).knobs(unversioned=True)
    return RunFacts(
        commit=git_state(root).commit,
        machine=machine_facts(),
        packages=packages(),
        knobs={name: value for name, value in knobs.items() if not name.startswith("dag.")},
        code={name: each.code for name, each in read_document(layout.stage_versions, StageVersions).root.items()},
    )


def finished_stages(root: Path) -> list[LockedStage]:
    """Return the stages in the pipeline's order. Raises ArtifactError where one is not in dvc.lock."""
    params = recorded_params(Layout(root))
    lock = {stage.name: stage for stage in lock_of(root, params, side_tasks=True).stages}
    if missing := [label for label in _labels(params) if label not in lock]:
        more = f" and {len(missing) - 1} more stages" if len(missing) > 1 else ""
        raise ArtifactError(f"{missing[0]}{more} did not run here yet; `loopline run` or `dvc repro` runs what is left")
    return sorted(lock.values(), key=_rank)


def artifact_digests(root: Path, stage: LockedStage) -> Iterator[tuple[str, dict[str, ContentDigest]]]:
    """Yield the outputs of a stage, each with the digests of its files. Raises ArtifactError for a missing one."""
    for out in stage.outs:
        found = {path: content_digest(root, path) for path in _files(root, out)}
        counted = {path: digests for path, digests in found.items() if digests is not None}
        if counted or not found:
            yield out, counted


def _labels(params: Params) -> Iterator[str]:
    for stage in STAGES:
        yield from (stage_label(stage.name, key) for key in stage.keys(params))


def _rank(stage: LockedStage) -> tuple[str, int, str]:
    """Return a stage's place: what is before all iterations, each iteration after the other, what comes after them."""
    place = _PLACES[find_stage(stage.task).name]
    if place in _BY_ITERATION:
        return stage.key, place, ""
    return "" if place < _BY_ITERATION[0] else "~", place, stage.key


def _files(root: Path, out: str) -> list[str]:
    """Return the files of an output, relative to the project's root; a missing output is one, which is missing."""
    path = root / out
    if not path.is_dir():
        return [out]
    return sorted(file.relative_to(root).as_posix() for file in path.rglob("*") if file.is_file())
