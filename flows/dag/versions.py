"""The version of every stage: a digest over the code that it runs and the parameters that it reads.

Why not list source folders and sections of params.yaml for each stage in dvc.yaml? At 90 iterations those are thousands
of lines in dvc.lock, which DVC parses and rewrites after every stage (measured: 4 s each); and a folder is too coarse:
editing the report would score again. So one stage, version_stages, depends on all code and on params.yaml and writes
a digest of code and one of parameters for each stage. The two digests are DVC parameters of the stage, so that
`dvc status` tells code from knobs; together they are the version of its Prefect task. The values of the knobs are in a
file of their own, since DVC searches the one with the digests for every stage; version_stages prints which changed.
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

from flows.dag.stages import STAGES, Stage, find_stage
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import StageKnobs, StageVersion, StageVersions, read_document, write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.lineage.provenance.dvc_lock import LockedStage

SHELL = frozenset(
    {
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


def version_stages(context: StageContext[Params]) -> None:
    """Write the versions of all stages but the one that does this, and print what is new in them."""
    layout, params = context.layout, context.inputs
    stages = [stage for stage in STAGES if stage.name != "version_stages"]
    versions = StageVersions({stage.name: stage_version(stage, params, layout.root) for stage in stages})
    knobs = StageKnobs({stage.name: stage.knobs(params) for stage in stages})
    with suppress(ArtifactError):  # no version yet, or one of an older format
        for line in _changes(layout, versions, knobs):
            print(line)
    write_document(layout.stage_versions, versions)
    write_document(layout.stage_knobs, knobs)


def stage_version(stage: Stage, params: Params, root: Path) -> StageVersion:
    """The version of `stage` as code and params.yaml are now."""
    values = hashlib.sha256(json.dumps(stage.knobs(params), sort_keys=True).encode()).hexdigest()
    return StageVersion(code=code_version(stage, root)[:16], params=values[:16])


def changed_code(stages: Iterable[LockedStage], params: Params, root: Path) -> Iterator[str]:
    """The stages whose code or parameters, as they lie here, are not those that made the artifacts."""
    for task, version in {stage.task: stage.version for stage in stages}.items():
        if version is None:
            continue
        now = stage_version(find_stage(task), params, root)
        for part, then, here in (("code", version.code, now.code), ("parameters", version.params, now.params)):
            if then != here:
                yield f"{task}: {part} changed since it ran ({then[:12]}, now {here[:12]}); run `dvc repro`"


def _changes(layout: Layout, versions: StageVersions, knobs: StageKnobs) -> Iterator[str]:
    """A line for each knob whose value is another than in the files, and for code, with the stages that it changes.

    Raises ArtifactError when there are no such files.
    """
    versions_before = read_document(layout.stage_versions, StageVersions).root
    knobs_before = read_document(layout.stage_knobs, StageKnobs).root
    changed: dict[str, list[str]] = {}
    for stage, values in knobs.root.items():
        before = knobs_before.get(stage, {})
        for name in sorted({*values, *before}):
            old, new = (json.dumps(each[name]) if name in each else "absent" for each in (before, values))
            if old != new:
                changed.setdefault(f"{name}: {old} -> {new}", []).append(stage)
    for stage, version in versions.root.items():
        if stage in versions_before and versions_before[stage].code != version.code:
            changed.setdefault("code", []).append(stage)
    return (f"changed: {what} ({', '.join(stages)})" for what, stages in changed.items())


def code_version(stage: Stage, root: Path) -> str:
    """SHA-256 over the names and contents of the files that `stage` runs, in hexadecimal."""
    total = hashlib.sha256()
    for file in sorted(stage_files(stage, root)):
        name = file.relative_to(root).as_posix()
        total.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def stage_files(stage: Stage, root: Path) -> set[Path]:
    """The project's files that `stage` runs: modules it imports (directly or not) and data files beside them.

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
    """The packages whose __init__ runs before the module."""
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
    """Names that `file` imports anywhere, functions included, or spells as strings (what registries import late)."""
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
    """The file's syntax tree. Up to Python 3.12, parsing fails with a SystemError (AST constructor recursion depth
    mismatch) when garbage collection gives way to another thread that parses, and Prefect has threads.
    """
    source, collects = file.read_bytes(), gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, str(file))
    finally:
        if collects:
            gc.enable()


def _from_import(node: ast.ImportFrom, package: str) -> list[str]:
    """`from a import b` names the module a, and perhaps the module a.b."""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    return [module, *(f"{module}.{alias.name}" for alias in node.names)]


def _data_files(folder: Path) -> Iterator[Path]:
    """Templates and the like: files of a package that are no Python, also in folders that are no packages.

    Not what editors, git and file managers leave beside the files that they work on.
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
