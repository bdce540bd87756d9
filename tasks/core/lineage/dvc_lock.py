"""The content of dvc.lock: each stage's code, parameters and artifacts, with their md5 by DVC.

It is read as plain YAML, so that a stage needs no DVC in its process.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from tasks.core.config.params import Params
from tasks.core.config.yaml_text import YamlFault, parse_yaml
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout, holds_clocks
from tasks.core.records.run_manifest import StageVersion

FOLDERS_OF_MANY = ("iterations", "evaluations")
"""Folders that stages read whole: they may hold wall-clock files and remains of a longer run."""
STAGE_VERSIONS = Layout(Path()).stage_versions.as_posix()
CODE = ("tasks", "flows", "params.yaml")
"""Files and folders whose content determines the versions of the stages."""
SIDE_TASKS = ("version_stages", "tabulate_curves", "report", "record_lineage")
"""Tasks that read a run and change neither policy nor scores: a new look of the report makes no new run."""

_ITERATION = re.compile(r"i\d+$")


@dataclass(frozen=True)
class LockedStage:
    """One stage as DVC recorded it: md5 by path (a folder's ends in ".dir") and parameter values by name."""

    name: str
    """Name with the foreach key: "collect_rollouts@i003"."""
    deps: Mapping[str, str]
    outs: Mapping[str, str]
    params: Mapping[str, Any]

    @property
    def version(self) -> StageVersion | None:
        """Return digests of the code and parameters that the stage ran with; None for the stage that writes them."""
        digests = [self.params.get(f"{STAGE_VERSIONS}:{self.task}.{part}") for part in ("code", "params")]
        return None if None in digests else StageVersion(code=str(digests[0]), params=str(digests[1]))

    @property
    def inputs(self) -> dict[str, str]:
        """Return the files and folders that the stage read, except code: path to md5."""
        return {path: md5 for path, md5 in self.deps.items() if PurePosixPath(path).parts[0] not in CODE}

    @property
    def values_read(self) -> dict[str, dict[str, Any]]:
        """Return the values that the stage read out of artifacts of which it reads nothing else: by path and name."""
        found: dict[str, dict[str, Any]] = {}
        for name, value in self.params.items():
            path, _, key = name.rpartition(":")
            if path not in (STAGE_VERSIONS, *CODE):
                found.setdefault(path, {})[key] = value
        return found

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the paths of all artifacts that the stage read, or values of them."""
        return (*self.inputs, *self.values_read)

    @property
    def task(self) -> str:
        return self.name.partition("@")[0]

    @property
    def key(self) -> str:
        return self.name.partition("@")[2]


@dataclass(frozen=True)
class DvcLock:
    """The stages of one pipeline, in the order of dvc.lock."""

    stages: tuple[LockedStage, ...]

    @cached_property
    def artifacts(self) -> dict[str, str]:
        """Return every artifact that a stage wrote: path to md5."""
        return {path: md5 for stage in self.stages for path, md5 in stage.outs.items()}

    @cached_property
    def sources(self) -> dict[str, str]:
        """Return inputs that no stage wrote, with which the pipeline starts (a base policy, the data of a world).

        A path counts as written where a stage wrote it, a folder above it, or files inside it.
        """
        read = {path: md5 for stage in self.stages for path, md5 in stage.inputs.items()}
        written = self.artifacts.keys() | {folder for out in self.artifacts for folder in _folders_above(out)}
        return {
            path: md5
            for path, md5 in read.items()
            if path not in written and self.artifacts.keys().isdisjoint(_folders_above(path))
        }

    @property
    def digest(self) -> str:
        """Return the SHA-256 over code, parameters and artifacts of all stages, except wall-clock files.

        Equal runs have equal digests, by which a pipeline run is found again.
        """
        content = {s.name: [_stable(s.deps), _stable(s.outs), dict(s.params)] for s in self.stages}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def task_versions(self) -> dict[str, str]:
        """Return the digest of the code that each task ran and the parameters it read, by task name."""
        return {stage.task: stage.version.digest for stage in self.stages if stage.version is not None}


def lock_of(root: Path, params: Params, side_tasks: bool = False) -> DvcLock:
    """Return the stages in the dvc.lock of `root` that belong to the pipeline of these params. Raises ArtifactError."""
    maps = (params.dag.previous, params.dag.evaluated, params.dag.collected, params.dag.searched)
    return read_lock(root / "dvc.lock", *maps, side_tasks=side_tasks)


def whole_lock(path: Path) -> DvcLock:
    """Return all stages of a dvc.lock. Raises ArtifactError."""
    return DvcLock(tuple(_stage(name, entry) for name, entry in _entries(path).items()))


def read_lock(
    path: Path,
    iterations: Iterable[str],
    evaluated: Iterable[str],
    collected: Iterable[str] | None = None,
    searched: Iterable[str] = (),
    side_tasks: bool = False,
) -> DvcLock:
    """Return the stages in dvc.lock that belong to a pipeline of these iteration keys; `collected` None: all collect.

    DVC leaves stages in the lock that dvc.yaml no longer defines (from a longer run before). So other iteration keys
    are skipped; keys that are no iterations (splits) are kept. `SIDE_TASKS` are included only on request. Raises
    ArtifactError when the file is missing or not a lock file.
    """
    trained = set(iterations)
    played = trained if collected is None else set(collected)
    searching = set(searched)
    keys = {
        "evaluate_policy": set(evaluated),
        "collect_rollouts": played,
        "filter_advantages": played,
        "search_trees": searching,
        "pair_turns": searching,
    }
    entries = _entries(path).items()
    stages = (_stage(name, entry) for name, entry in entries if side_tasks or name not in SIDE_TASKS)
    named = ((stage, stage.key in keys.get(stage.task, trained)) for stage in stages)
    return DvcLock(tuple(stage for stage, is_of_run in named if is_of_run or not _ITERATION.match(stage.key)))


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; run `dvc repro`") from None
    except (UnicodeDecodeError, YamlFault) as error:
        raise ArtifactError(f"{path}: not valid YAML ({error}); restore it from git or run `dvc repro`") from None
    if not isinstance(content, dict) or not isinstance(content.get("stages"), dict):
        raise ArtifactError(f"{path}: holds no `stages`; restore it from git or run `dvc repro`")
    return content["stages"]  # type: ignore[no-any-return]


def _stage(name: str, entry: dict[str, Any]) -> LockedStage:
    files = entry.get("params", {})
    params = {f"{file}:{key}": value for file, values in files.items() for key, value in values.items()}
    return LockedStage(name, _md5s(entry.get("deps", [])), _md5s(entry.get("outs", [])), params)


def _md5s(entries: list[dict[str, Any]]) -> dict[str, str]:
    return {entry["path"]: str(entry.get("md5", "")) for entry in entries}


def _folders_above(path: str) -> list[str]:
    return [folder.as_posix() for folder in PurePosixPath(path).parents]


def _stable(files: Mapping[str, str]) -> dict[str, str]:
    return {
        path: md5 for path, md5 in files.items() if Path(path).name not in FOLDERS_OF_MANY and not holds_clocks(path)
    }
