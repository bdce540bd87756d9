"""The stages that `dvc repro` would run: by DVC's own view of artifacts, and by the versions as they are now."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.dag.dvc_seam import stage_of_command
from flows.dag.stages import find_stage
from flows.dag.version_stages import changed_knobs, recorded_version, run_manifest
from tasks.core.config.params import Params, ParamsError, load_params
from tasks.core.lineage.dvc_lock import STAGE_VERSIONS, LockedStage, lock_of
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest, StageVersion, recorded_params

_FILES_SHOWN = 3
_RECORDER = "version_stages"


@dataclass(frozen=True)
class Due:
    """A stage, and why it would run; no reason: it would not."""

    name: str
    key: str
    reasons: tuple[str, ...]
    is_sure: bool
    """Whether it runs whatever the stages before it make."""


def due_stages(root: Path) -> list[Due]:
    """Return every stage in DVC's order. Raises ParamsError, ArtifactError and DVC's errors about its own files."""
    from dvc.repo import Repo
    from networkx import topological_sort

    logging.getLogger("dvc").setLevel(logging.ERROR)
    versions = _Versions(Layout(root))
    found: dict[str, Due] = {}
    with Repo(str(root)) as repo:
        graph = repo.index.graph
        seen_by_dvc = repo.status()
        for stage in topological_sort(graph.reverse()):
            name, key = stage_of_command(str(stage.cmd)) or (stage.addressing, "")
            earlier = [found[other.addressing] for other in graph.successors(stage) if other.addressing in found]
            own = versions.reasons(name, key) or [*_by_dvc(seen_by_dvc.get(stage.addressing, ()))]
            follows = sorted({f"follows {other.name}" for other in earlier if _reruns(other)})
            found[stage.addressing] = Due(name, key, tuple(own or follows), is_sure=bool(own))
    return list(found.values())


def _reruns(stage: Due) -> bool:
    """Return whether the stages behind this one may get other inputs of it. What versions change, `_Versions` knows."""
    return bool(stage.reasons) and stage.name != _RECORDER


def _by_dvc(entries: Any) -> Iterator[str]:
    """Yield what DVC says of the files of a stage, without its versions."""
    for entry in entries:
        if not isinstance(entry, Mapping):
            yield str(entry)
            continue
        for kind, files in entry.items():
            for path, state in files.items():
                if isinstance(state, Mapping) and path != STAGE_VERSIONS:  # values of an artifact
                    yield from (f"{name} in {path} {change}" for name, change in state.items())
                elif path != STAGE_VERSIONS:
                    yield f"{path} {state if isinstance(state, str) else kind}"


class _Versions:
    """The versions of all stages now, those recorded, and those in dvc.lock."""

    def __init__(self, layout: Layout) -> None:
        self._params = load_params(layout.params)
        self._now = run_manifest(self._params, layout.params)
        self._recorded = _recorded(layout)
        self._ran = _locked(layout, self._params)

    def reasons(self, name: str, key: str) -> list[str]:
        """Return why the version of a stage makes it run."""
        if name not in self._now.stages:
            return []
        stage = self._ran.get(f"{name}@{key}" if key else name)
        now = recorded_version(self._now, find_stage(name), self._params)
        if stage is None:
            return ["has not run yet"]
        return [] if stage.version == now else [*self._differences(name, stage.version, now)]

    def _differences(self, name: str, ran: StageVersion | None, now: StageVersion) -> Iterator[str]:
        stage = find_stage(name)
        manifest, params = self._recorded or (None, self._params)
        if ran is None or manifest is None or ran != recorded_version(manifest, stage, params):
            yield "its code or its knobs are not those it ran with"
            return
        yield from changed_knobs(stage, params, self._params)
        if ran.code != now.code:
            yield "code: " + _shortened(_changed_code(name, manifest, self._now))


def _recorded(layout: Layout) -> tuple[RunManifest, Params] | None:
    try:
        return read_document(layout.manifest, RunManifest), recorded_params(layout)
    except (ArtifactError, ParamsError):  # nothing has run yet, or it is of an older format
        return None


def _locked(layout: Layout, params: Params) -> dict[str, LockedStage]:
    if not (layout.root / "dvc.lock").exists():
        return {}
    return {stage.name: stage for stage in lock_of(layout.root, params, side_tasks=True).stages}


def _changed_code(name: str, before: RunManifest, now: RunManifest) -> list[str]:
    files = sorted({*before.stages.get(name, ()), *now.stages[name]})
    return [file for file in files if before.files.get(file) != now.files.get(file)]


def _shortened(files: list[str]) -> str:
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    return ", ".join(files[:_FILES_SHOWN]) + more
