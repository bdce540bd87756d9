"""A run held against a published one, artifact by artifact, in lines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.published.published_run import PublishedRun, artifacts_that_count
from tasks.core.lineage.dvc_lock import lock_of
from tasks.core.lineage.integrity import dvc_md5
from tasks.core.records.documents import dotted, read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest, of_other_knobs, recorded_params

_NAMED = 4
"""Names in one line."""


@dataclass(frozen=True)
class Verified:
    """The answer."""

    lines: list[str]
    holds: bool


def verify(run: PublishedRun, root: Path) -> Verified:
    """Compare the files of the run in the project `root` with a published run. Raises ArtifactError and ParamsError."""
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
        return Verified([f"all {number} artifacts have the published bytes{about}"], True)
    first = f"{number - len(differing)} of {number} artifacts have the published bytes; these differ:"
    return Verified([first, *differing, *notes], False)


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
