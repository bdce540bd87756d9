"""The version of every stage: a digest over the code that it runs and the parameters that it reads.

Why not list source folders and sections of params.yaml for each stage in dvc.yaml? At 90 iterations those are thousands
of lines in dvc.lock, which DVC parses and rewrites after every stage (measured: 4 s each); and a folder is too coarse:
editing the report would score again. So one stage, version_stages, depends on all code and on params.yaml and writes
a digest of code and one of parameters for each stage. The two digests are DVC parameters of the stage, so that
`dvc status` tells code from knobs; together they are the version of its Prefect task. data/manifest.json holds what
the digests stand for: all parameters, and the digest of each file of code. Every later stage takes its parameters from
there and holds the code against it (recorded.py). It is a file of its own, since DVC searches the one with the digests
for every stage. version_stages prints what changed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from flows.dag.file_signatures import changed_files, signatures
from flows.dag.left_overs import clear_left_overs
from flows.dag.stage_code import InUse, code_version, stage_files, stage_packages
from flows.dag.stages import STAGES, Stage, find_stage
from tasks.core.config.dag import NO_WORLD_FILES
from tasks.core.config.params import Params, ParamsError, load_params
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.dvc_lock import LockedStage
from tasks.core.lineage.machine import libraries, machine_kind
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, digest
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest, StageVersion, StageVersions, recorded_params

CODE = Path(__file__).resolve().parents[2]
"""Folder of the code that this process runs."""
_ELSEWHERE = "where it was pulled with its results, `dvc repro --allow-missing` goes on"


class ChangedMeanwhile(RuntimeError):  # noqa: N818
    """A file was edited while version_stages read it, so DVC would record one content and the digests another."""


class ForeignCode(RuntimeError):  # noqa: N818
    """This process has imported the code of another checkout than the one whose stages it runs."""


def version_stages(context: StageContext[Params]) -> None:
    """Write the versions of all stages except this one, and what they stand for; print what is new in them.

    Raises ChangedMeanwhile, ForeignCode, and ParamsError for files that knobs name and that are not there.
    """
    layout, params = context.layout, context.inputs
    require_own_files(params, layout.root)
    before = signatures(_code_files(InUse.by(params)))
    manifest = run_manifest(params, layout.params)
    _check_whose_code(manifest, params, layout.root)
    versions = StageVersions({name: recorded_version(manifest, find_stage(name), params) for name in manifest.stages})
    with suppress(ArtifactError, ParamsError):  # no version yet, or a manifest of an older format
        for line in _changes(layout, versions, params):
            print(line)
    if edited := changed_files(before):
        raise ChangedMeanwhile(f"{edited[0]} was edited while version_stages read it; run the same command again")
    for line in clear_left_overs(layout, params):
        print(line)
    write_document(layout.stage_versions, versions)
    write_document(layout.manifest, manifest)


def are_of_another_time(layout: Layout) -> bool:
    """Return whether the recorded versions are not those of today's code and params.yaml.

    DVC may count this stage as done all the same: `dvc commit` records the present params.yaml beside the old versions.
    """
    try:
        recorded = read_document(layout.stage_versions, StageVersions).root
        params = load_params(layout.params)
    except (ArtifactError, ParamsError):  # DVC runs the stage, which says what is wrong
        return False
    now = run_manifest(params, layout.params)
    return recorded != {name: recorded_version(now, find_stage(name), params) for name in now.stages}


def run_manifest(params: Params, params_file: Path) -> RunManifest:
    """Return what a run would be made with now: these parameters, and the code of this process as it lies on disk."""
    used = InUse.by(params)
    runs = {stage.name: stage_files(stage, CODE, used) for stage in STAGES if stage.name != "version_stages"}
    files = {name: file for each in runs.values() for name, file in each.items()}
    return RunManifest(
        params=params.model_dump(mode="json"),
        params_file=digest(params_file),
        files={name: digest(files[name]) for name in sorted(files)},
        stages={stage: tuple(each) for stage, each in runs.items()},
        machine=machine_kind(),
        libraries=libraries(),
    )


def recorded_version(manifest: RunManifest, stage: Stage, params: Params) -> StageVersion:
    """Return the version of `stage` that a manifest stands for; `params` are the manifest's."""
    return StageVersion(code=manifest.code_of(stage.name)[:16], params=_digest_of_knobs(stage, params))


def stage_version(stage: Stage, params: Params, root: Path) -> StageVersion:
    """Return the version of `stage` under these parameters and the code at `root` as they are now."""
    return StageVersion(code=code_version(stage, root, InUse.by(params))[:16], params=_digest_of_knobs(stage, params))


def _digest_of_knobs(stage: Stage, params: Params) -> str:
    return hashlib.sha256(json.dumps(stage.knobs(params), sort_keys=True).encode()).hexdigest()[:16]


def changed_code(stages: Iterable[LockedStage], params: Params, root: Path) -> Iterator[str]:
    """Yield the stages whose code or parameters, as they lie here, are not those that made the artifacts."""
    for task, version in {stage.task: stage.version for stage in stages}.items():
        if version is None:
            continue
        if task not in {stage.name for stage in STAGES}:
            yield f"{task}: left with 0.3.0: an older version made this run; `loopline run` makes it anew"
            continue
        now = stage_version(find_stage(task), params, root)
        for part, then, here in (("code", version.code, now.code), ("parameters", version.params, now.params)):
            if then != here:
                yield f"{task}: {part} changed since it ran ({then[:12]}, now {here[:12]}); run `loopline run`"


def _changes(layout: Layout, versions: StageVersions, params: Params) -> Iterator[str]:
    """Yield a line for each changed knob, and one for changed code, with the stages that run again because of it.

    Raises ArtifactError and ParamsError when the files of before can't be read.
    """
    versions_before = read_document(layout.stage_versions, StageVersions).root
    params_before = recorded_params(layout)
    changed: dict[str, list[str]] = {}
    for name in versions.root:
        for line in changed_knobs(find_stage(name), params_before, params):
            changed.setdefault(line, []).append(name)
    for name, version in versions.root.items():
        if name in versions_before and versions_before[name].code != version.code:
            changed.setdefault("code", []).append(name)
    return (f"changed: {what} ({', '.join(stages)})" for what, stages in changed.items())


def changed_knobs(stage: Stage, before: Params, after: Params) -> Iterator[str]:
    """Yield "update.learning_rate: 0.001 -> 0.05" for each knob of `stage` whose value differs."""
    old, new = stage.knobs(before), stage.knobs(after)
    for name in sorted({*new, *old}):
        then, now = (json.dumps(each[name]) if name in each else "absent" for each in (old, new))
        if then != now:
            yield f"{name}: {then} -> {now}"


def _check_whose_code(manifest: RunManifest, params: Params, root: Path) -> None:
    """Raise ForeignCode where `root` has code of its own that is not what this process runs."""
    here = root / "tasks"
    if not here.is_dir() or here.samefile(CODE / "tasks"):
        return
    packaged = stage_packages(InUse.by(params))
    for name, content in manifest.files.items():
        if name in packaged:
            continue
        if not (root / name).is_file() or digest(root / name) != content:
            raise ForeignCode(
                f"python imports the code of {CODE}, and {name} is another one in {root}; run with `.ci/env` from "
                f"{root}, or unset PYTHONPATH and PYTHONSAFEPATH"
            )


def _code_files(used: InUse) -> Iterator[Path]:
    """Yield all files of the project's code, whichever stages run them, and of the packages in use."""
    yield from stage_packages(used).values()
    for room in ("tasks", "flows"):
        yield from (file for file in (CODE / room).rglob("*") if file.suffix != ".pyc" and file.is_file())


def require_named_files(params: Params, root: Path) -> None:
    """Raise ParamsError where `policy.source` or the data of the world is not there, in the place of DVC's errno."""
    sources = params.dag.sources
    if not (root / sources.policy).exists():
        raise ParamsError(
            f"policy.source: {params.policy.source} is no folder here, nor `recipe`, `pip:PACKAGE==VERSION` or a hub "
            f"id with its policy.revision; {_ELSEWHERE}"
        )
    if sources.package != NO_WORLD_FILES and not (root / sources.package).exists():
        raise ParamsError(
            f"world.name: {params.world.name} is not installed at {sources.package} here; run `loopline configure "
            "--refresh`"
        )
    if sources.world != NO_WORLD_FILES and not (root / sources.world).exists():
        raise ParamsError(f"{_knob_of(params, Path(sources.world))}: there is no {sources.world}; {_ELSEWHERE}")


def _knob_of(params: Params, file: Path) -> str:
    """Return the knob of the world that names `file`, or a folder that it lies in."""
    world = f"world.{params.world.name}"
    named = [name for name, value in params.world.settings if value in (file, *file.parents)]
    return f"{world}.{named[0]}" if named else world


def require_own_files(params: Params, root: Path) -> None:
    """Raise ParamsError as `require_named_files`, but not for files of the project itself, which git has."""
    if not params.dag.sources.policy.startswith("data/"):
        require_named_files(params, root)
