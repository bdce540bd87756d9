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

import ast
import gc
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from flows.dag.file_signatures import changed_files, signatures
from flows.dag.input_files import require_own_files
from flows.dag.left_overs import clear_left_overs
from flows.dag.stages import STAGES, Stage, find_stage
from tasks.core.config.params import Params, ParamsError
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.dvc_lock import LockedStage
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import ArtifactError, digest
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import RunManifest, StageVersion, StageVersions, digest_of_code, recorded_params

CODE = Path(__file__).resolve().parents[2]
"""Folder of the code that this process runs."""

SHELL = frozenset(
    {
        "tasks.core.config.dag",
        "tasks.core.config.machines",
        "tasks.core.config.params",
        "tasks.core.config.section",
        "tasks.core.config.stage_inputs",
        "tasks.core.interfaces.stage",
        "tasks.core.records.layout",
    }
)
"""How a stage is handed its parameters and paths: the values are in the digest, and the paths are DVC's outputs."""

_MODULE_NAME = re.compile(r"(?:tasks|flows)(?:\.\w+)+")


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
    before = signatures(_code_files())
    manifest = run_manifest(params, layout.params)
    _check_whose_code(manifest, layout.root)
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


def run_manifest(params: Params, params_file: Path) -> RunManifest:
    """Return what a run would be made with now: these parameters, and the code of this process as it lies on disk."""
    runs = {stage.name: sorted(stage_files(stage, CODE)) for stage in STAGES if stage.name != "version_stages"}
    files = {file for each in runs.values() for file in each}
    return RunManifest(
        params=params.model_dump(mode="json"),
        params_file=digest(params_file),
        files={file.relative_to(CODE).as_posix(): digest(file) for file in sorted(files)},
        stages={name: tuple(file.relative_to(CODE).as_posix() for file in each) for name, each in runs.items()},
    )


def recorded_version(manifest: RunManifest, stage: Stage, params: Params) -> StageVersion:
    """Return the version of `stage` that a manifest stands for; `params` are the manifest's."""
    return StageVersion(code=manifest.code_of(stage.name)[:16], params=_digest_of_knobs(stage, params))


def stage_version(stage: Stage, params: Params, root: Path) -> StageVersion:
    """Return the version of `stage` under these parameters and the code at `root` as they are now."""
    return StageVersion(code=code_version(stage, root)[:16], params=_digest_of_knobs(stage, params))


def _digest_of_knobs(stage: Stage, params: Params) -> str:
    return hashlib.sha256(json.dumps(stage.knobs(params), sort_keys=True).encode()).hexdigest()[:16]


def changed_code(stages: Iterable[LockedStage], params: Params, root: Path) -> Iterator[str]:
    """Yield the stages whose code or parameters, as they lie here, are not those that made the artifacts."""
    for task, version in {stage.task: stage.version for stage in stages}.items():
        if version is None:
            continue
        now = stage_version(find_stage(task), params, root)
        for part, then, here in (("code", version.code, now.code), ("parameters", version.params, now.params)):
            if then != here:
                yield f"{task}: {part} changed since it ran ({then[:12]}, now {here[:12]}); run `dvc repro`"


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


def _check_whose_code(manifest: RunManifest, root: Path) -> None:
    """Raise ForeignCode where `root` has code of its own that is not what this process runs."""
    here = root / "tasks"
    if not here.is_dir() or here.samefile(CODE / "tasks"):
        return
    for name, content in manifest.files.items():
        if not (root / name).is_file() or digest(root / name) != content:
            raise ForeignCode(
                f"python imports the code of {CODE}, and {name} is another one in {root}; run with `.ci/env` from "
                f"{root}, or unset PYTHONPATH and PYTHONSAFEPATH"
            )


def _code_files() -> Iterator[Path]:
    """Yield all files of the project's code, whichever stages run them."""
    for room in ("tasks", "flows"):
        yield from (file for file in (CODE / room).rglob("*") if file.suffix != ".pyc" and file.is_file())


def code_version(stage: Stage, root: Path) -> str:
    """SHA-256 over the names and contents of the files that `stage` runs, in hexadecimal."""
    files = sorted(stage_files(stage, root))
    return digest_of_code((file.relative_to(root).as_posix(), digest(file)) for file in files)


def stage_files(stage: Stage, root: Path) -> set[Path]:
    """Return the project's files that `stage` runs: modules it imports (directly or not) and data files next to them.

    Raises ValueError when its body does not exist.
    """
    if _module_file(root, stage.module) is None:
        raise ValueError(f"stage {stage.name}: no module {stage.module}")
    modules = _closure([stage.module], root)
    return modules | {file for folder in {module.parent for module in modules} for file in _data_files(folder)}


def _closure(names: Iterable[str], root: Path) -> set[Path]:
    found: set[Path] = set()
    seen = set(SHELL)
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) in seen:
            continue
        seen.add(name)
        if file := _module_file(root, name):
            found.add(file)
            waiting += [*_imports(file, name), *_parents(name)]
    return found


def _parents(name: str) -> Iterator[str]:
    """Yield the packages whose __init__ runs before the module."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


@cache
def _module_file(root: Path, name: str) -> Path | None:
    path = root.joinpath(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


@cache
def _imports(file: Path, name: str) -> tuple[str, ...]:
    """Return the names that `file` imports, in functions too, or spells as strings (registries import those late)."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(_parsed(file)):
        match node:
            case ast.Import():
                names += [alias.name for alias in node.names]
            case ast.ImportFrom():
                names += _from_import(node, package)
            case ast.Constant(value=str(text)) if found := _MODULE_NAME.fullmatch(text.partition(":")[0]):
                names.append(found.group())
    return tuple(names)


def _parsed(file: Path) -> ast.Module:
    """Return the file's syntax tree.

    Up to Python 3.12, parsing fails with a SystemError (AST constructor recursion depth mismatch) when garbage
    collection gives way to another thread that parses, and Prefect has threads.
    """
    source, collects = file.read_bytes(), gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, str(file))
    finally:
        if collects:
            gc.enable()


def _from_import(node: ast.ImportFrom, package: str) -> list[str]:
    """Yield the module a of `from a import b`, and the module a.b where there is one."""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    return [module, *(f"{module}.{alias.name}" for alias in node.names)]


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield templates and the like: files of a package that are no Python, also in folders that are no packages.

    Leaves out what editors, git and file managers put next to the files that they work on.
    """
    for path in folder.iterdir():
        if path.is_dir():
            if path.name != "__pycache__" and not (path / "__init__.py").exists():
                yield from _data_files(path)
        elif (
            path.suffix not in (".py", ".pyc", ".orig", ".rej")
            and not path.name.startswith(".")
            and path.name[-1] != "~"
        ):
            yield path
