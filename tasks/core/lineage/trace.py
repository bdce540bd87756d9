"""The provenance of what a user names (a checkpoint, metric, rollout, artifact): all stages behind it by dvc.lock.

It goes back to the sources, and tells any broken link on the way. Commit and parameters are those recorded when a stage
ran, whatever the checkout holds today.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tasks.core.config.lineage import LineageConfig
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.dvc_lock import FOLDERS_OF_MANY, SIDE_TASKS, DvcLock, LockedStage
from tasks.core.lineage.git_state import DIRTY, GitState
from tasks.core.lineage.integrity import broken_artifact
from tasks.core.lineage.mlflow_store import explained, open_store, store_exists, tracking_uri
from tasks.core.policies.checkpoint_files import weights_file
from tasks.core.records.documents import dotted_numbers, read_document
from tasks.core.records.files import ArtifactError, digest, read_json
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import Attestation, StageVersions
from tasks.core.records.schemas import ROLLOUTS, SCORED_ROLLOUTS, SELECTED_POLICY
from tasks.core.records.scores import Selection
from tasks.core.records.tables import read_table

_ITERATION = re.compile(r"i\d{3}")
_AS_MLFLOW_HAS_IT = tuple(f"{split}/" for split in ("dev", *TEST_SPLITS))
FORMS = "a checkpoint (i012, selected), a metric (test_normal.tgc, dev.tgc, i003.kl), a rollout (i003:TASK:0) or a path"


class UnknownSubject(ValueError):  # noqa: N818
    """A name that lineage does not know; the message lists the names that it knows."""


@dataclass(frozen=True)
class Subject:
    """An artifact, and the part of it that the question is about."""

    path: str
    """Path of the artifact, relative to the project's root."""
    facts: tuple[str, ...] = ()
    """Facts about the question's own object, one line each."""


def find_subject(name: str, layout: Layout) -> Subject:
    """Return the subject that `name` means.

    Raises UnknownSubject, and ArtifactError for an artifact that cannot be read.
    """
    if name == SELECTED_POLICY:
        return Subject(_relative(layout, layout.policy(read_document(layout.selection, Selection).iteration)))
    if _ITERATION.fullmatch(name):
        return Subject(_relative(layout, layout.policy(name)))
    if name.count(":") == 2:
        return _rollout(layout, *name.split(":"))
    if name.startswith(_AS_MLFLOW_HAS_IT):
        name = name.replace("/", ".")
    if "/" not in name and "." in name:
        return _metric(layout, *name.split(".", 1))
    path = Path(name).as_posix()
    if Path(path).parts[:1] != ("data",) and not (layout.root / path).exists():
        raise UnknownSubject(f"{name} names nothing here; expected {FORMS}")
    return Subject(path)


def _metric(layout: Layout, scope: str, name: str) -> Subject:
    if scope in TEST_SPLITS:
        path = layout.score(scope)
    elif scope == "dev":
        path = layout.evaluation(read_document(layout.selection, Selection).iteration)
    elif _ITERATION.fullmatch(scope):
        path = layout.evaluation(scope) if name.startswith("dev.") else layout.metrics(scope)
    else:
        raise UnknownSubject(f"{scope}.{name} is not a metric; expected {FORMS}")
    numbers = dotted_numbers(read_json(path))
    wanted = name.removeprefix("dev.")
    if wanted not in numbers:
        raise UnknownSubject(
            f"{_relative(layout, path)} has no number {wanted!r}; it has: {', '.join(sorted(numbers))}"
        )
    return Subject(_relative(layout, path), (f"{scope}.{name} = {numbers[wanted]:g}",))


def _rollout(layout: Layout, scope: str, task: str, index: str) -> Subject:
    if _ITERATION.fullmatch(scope):
        path, schema, player = layout.rollouts(scope), ROLLOUTS, None
    elif scope in TEST_SPLITS:
        path, schema, player = layout.score_rollouts(scope), SCORED_ROLLOUTS, SELECTED_POLICY
    else:
        raise UnknownSubject(f"{scope}:{task}:{index} is not a rollout; expected {FORMS}")
    rows: list[dict[str, Any]] = read_table(path, schema).drop(["token_ids", "policy_mask", "turn_index"]).to_pylist()
    for row in rows:
        if (row["task_id"], str(row["rollout_index"])) == (task, index) and row.get("policy") == player:
            return Subject(_relative(layout, path), _facts(row))
    tasks = sorted({row["task_id"] for row in rows})
    raise UnknownSubject(f"{_relative(layout, path)} has no rollout {index} of {task!r}; its tasks: {', '.join(tasks)}")


def _facts(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"task {row['task_id']}, scenario {row['scenario_id']}, difficulty {row['difficulty']}, seed {row['seed']}",
        f"return {row['return']:g}, {'solved' if row['success'] else 'not solved'}, ended by {row['end_reason']}",
        f"played by the adapter {row['adapter_digest']} in {row['engine']} ({row['engine_version']})",
    )


def _relative(layout: Layout, path: Path) -> str:
    return path.relative_to(layout.root).as_posix()


UNKNOWN = "no stage in dvc.lock wrote it"


def producers(lock: DvcLock, path: str) -> list[LockedStage]:
    """Return the stages that wrote `path`, a folder above it, or files inside it, in the order of dvc.lock."""
    return [stage for stage in lock.stages if any(overlap(path, out) for out in stage.outs)]


def upstream_stages(lock: DvcLock, path: str) -> list[LockedStage]:
    """Return all stages that the artifact at `path` depends on, each once; a stage comes before its own dependencies.

    Empty when no stage wrote it.
    """
    stages, makers, waiting = dict[str, LockedStage](), dict[str, list[str]](), producers(lock, path)
    while waiting:
        stage = waiting.pop()
        if stage.name not in stages:
            found = [maker for read in stage.reads for maker in producers(lock, read) if maker is not stage]
            stages[stage.name], makers[stage.name] = stage, [maker.name for maker in found]
            waiting += found
    return [stages[name] for name in reversed([*TopologicalSorter(makers).static_order()])]


def broken_joints(lock: DvcLock, stages: list[LockedStage]) -> Iterator[str]:
    """Yield places where a stage read something else than dvc.lock records now."""
    written = lock.artifacts
    for stage in stages:
        for path in stage.inputs:
            now = written.get(path)
            if now is not None and now != stage.deps[path] and path.rpartition("/")[2] not in FOLDERS_OF_MANY:
                yield f"{stage.name} read {path} as {stage.deps[path]}, but dvc.lock has {now}; run `dvc repro`"


def other_values(stages: Sequence[LockedStage], root: Path) -> Iterator[str]:
    """Yield values of artifacts that are no longer as a stage read them."""
    for stage in stages:
        for path, values in stage.values_read.items():
            try:
                now = read_json(root / path)
            except ArtifactError as error:
                yield str(error)
                continue
            for name, value in values.items():
                if now.get(name) != value:
                    yield f"{stage.name} read {name} of {path} as {value}, it is {now.get(name)} now; run `dvc repro`"


def overlap(path: str, other: str) -> bool:
    """Return whether one of two paths is the other, or a folder above it."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


@dataclass(frozen=True)
class Provenance:
    """The stages behind a subject, their draws, and broken links."""

    stages: tuple[LockedStage, ...]
    """From the latest to the first."""
    played: tuple[str, ...]
    """The draws of every collection behind the subject: one line for each iteration."""
    sources: dict[str, str]
    """Artifacts that no stage wrote: path to md5."""
    broken: tuple[str, ...]
    """One line for each broken link."""


def trace_provenance(subject: Subject, lock: DvcLock, layout: Layout, cache: Path) -> Provenance:
    """Follow the subject back to its sources and check every digest on the way.

    `cache` is DVC's folder files/md5.
    """
    stages = upstream_stages(lock, subject.path)
    if not stages:
        return Provenance((), (), {}, (f"{subject.path}: {UNKNOWN}",))
    read = {path: stage.deps[path] for stage in stages for path in stage.inputs}
    sources = {path: md5 for path, md5 in read.items() if path in lock.sources}
    played, misplayed = _played(stages, layout)
    broken = [
        *_broken_artifacts(stages, sources, layout, cache),
        *broken_joints(lock, stages),
        *other_values(stages, layout.root),
        *_broken_versions(stages, layout),
        *disproved(stages, layout),
        *misplayed,
    ]
    return Provenance(tuple(stages), tuple(played), sources, tuple(broken))


def _broken_artifacts(
    stages: Sequence[LockedStage], sources: dict[str, str], layout: Layout, cache: Path
) -> Iterator[str]:
    written = {path: md5 for stage in stages for path, md5 in stage.outs.items()}
    for path, md5 in tqdm(written.items(), desc="checking", unit="artifact", leave=False, disable=len(written) < 50):
        yield from broken_artifact(layout.root, cache, path, md5)
    for path, md5 in sources.items():
        if Path(path).name not in FOLDERS_OF_MANY:
            yield from broken_artifact(layout.root, None, path, md5)


def _broken_versions(stages: Sequence[LockedStage], layout: Layout) -> Iterator[str]:
    """Yield stages whose code or parameters have changed since they made an artifact."""
    written = layout.stage_versions.exists()
    now = read_document(layout.stage_versions, StageVersions).root if written else {}
    for stage in stages:
        here = now[stage.task].digest if stage.task in now else None
        if stage.version is not None and stage.version.digest != here:
            yield (
                f"{stage.name} was made by code and parameters {stage.version.digest}, stage_versions.json has "
                f"{here}; run `dvc repro` or check out the commit that made it"
            )


def disproved(stages: Sequence[LockedStage], layout: Layout) -> Iterator[str]:
    """Yield each difference between dvc.lock and a stage's own attestation, made by hand, say by `dvc commit`."""
    for stage in stages:
        attestation = layout.attestation(stage.task, stage.key)
        if stage.version is None or attestation.relative_to(layout.root).as_posix() not in stage.outs:
            continue
        try:
            attested = read_document(attestation, Attestation)
        except ArtifactError as error:
            yield str(error)
            continue
        if attested.version != stage.version:
            yield f"{stage.name} ran with {attested.version.digest}, in dvc.lock it is {stage.version.digest}"
        for path, md5 in attested.outs.items():
            if path in stage.outs and stage.outs[path] != md5:
                yield f"{path}: {stage.name} wrote {md5}, in dvc.lock it is {stage.outs[path]}"


def _played(stages: Sequence[LockedStage], layout: Layout) -> tuple[list[str], list[str]]:
    """Return the draws of the collections, and collections that another adapter played than their checkpoint holds."""
    lines, broken = [], []
    for stage in stages:
        if stage.task not in ("collect_rollouts", "search_trees"):
            continue
        try:
            table = read_table(layout.rollouts(stage.key), ROLLOUTS).select(["task_id", "seed", "adapter_digest"])
        except ArtifactError as error:
            broken.append(str(error))
            continue
        tasks, seeds = sorted(set(table["task_id"].to_pylist())), table["seed"].to_pylist()
        lines.append(f"{stage.key}: {len(table)} rollouts of {len(tasks)} tasks: {', '.join(tasks)}")
        lines.append(f"{stage.key}: seeds {', '.join(map(str, seeds[:3]))}{', ...' if len(seeds) > 3 else ''}")
        broken += _misplayed(stage, layout, set(table["adapter_digest"].to_pylist()))
    return lines, broken


def _misplayed(stage: LockedStage, layout: Layout, digests: set[str]) -> Iterator[str]:
    """Yield collections whose rollouts record another adapter than the weights in the checkpoint."""
    for path in stage.inputs:
        weights = weights_file(layout.root / path)
        if path.endswith("/policy") and path.count("/") > 1 and weights.exists() and digests != {digest(weights)}:
            played = ", ".join(sorted(adapter[:12] for adapter in digests))
            yield f"{stage.name}: its rollouts were played by {played}, but {path} is {digest(weights)[:12]}"


@dataclass(frozen=True)
class Origin:
    """The state of the checkout in which a recorded run began."""

    git: GitState
    params: Mapping[str, str]
    """Values as text, by dotted name."""
    params_digest: str
    packages: str = ""
    """Installed packages among the code, which brought the world: "loopline-key-value==0.1.0"."""


def find_origin(config: LineageConfig, root: Path, versions: Mapping[str, str]) -> Origin | None:
    """Return the oldest finished run of any experiment whose tasks had these versions (digests of code and params).

    Versions of SIDE_TASKS are ignored, since no run is recorded by them. None where no such run was recorded. Raises
    LineageError when MLflow cannot be reached.
    """
    made = {task: version for task, version in versions.items() if task not in SIDE_TASKS}
    if not made or not store_exists(root):
        return None
    store = open_store(config, root)
    with explained(tracking_uri(root)):
        conditions = [f"tags.`task_version.{task}` = '{version}'" for task, version in sorted(made.items())]
        everywhere = [experiment.experiment_id for experiment in store.client.search_experiments()]
        runs = store.client.search_runs(
            everywhere, " and ".join(conditions), order_by=["attributes.start_time ASC"], max_results=1
        )
    if not runs:
        return None
    tags = runs[0].data.tags
    git = GitState(commit=tags.get("git_commit", ""), dirty=DIRTY.get(tags.get("git_dirty", "")))
    return Origin(git, dict(runs[0].data.params), tags.get("params_digest", "?"), tags.get("packages", ""))
