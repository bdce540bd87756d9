"""The code that a stage runs: its modules, and those of the world and the engine that params.yaml names, no other.

Files are known by their names: of the project's own, the path from its root; of an installed package, the distribution,
its version and the path in it: "loopline-key-value==0.1.0/loopline_key_value/kind.py".
"""

import ast
import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from flows.dag.stages import Stage
from tasks.core.config.engine import ENGINES
from tasks.core.config.kinds import FACE, Kinds, package_home
from tasks.core.config.world import WORLDS
from tasks.core.records.files import digest
from tasks.core.records.run_manifest import digest_of_code

SHELL = frozenset(
    {
        "tasks.core.config.dag",
        "tasks.core.config.kind_section",
        "tasks.core.config.kinds",
        "tasks.core.config.knob_names",
        "tasks.core.config.machines",
        "tasks.core.config.params",
        "tasks.core.config.section",
        "tasks.core.config.stage_inputs",
        "tasks.core.interfaces.machines",
        "tasks.core.interfaces.stage",
        "tasks.core.records.layout",
    }
)
"""How a stage is handed parameters, paths and machines: the values are in the digest, the paths are DVC's outputs."""

FINDERS: Mapping[str, Kinds] = {
    "tasks.core.interfaces.world_kind": WORLDS,
    "tasks.core.interfaces.engine_kind": ENGINES,
}
"""Modules by which a stage finds a kind and runs it: the stages that import one run the kind that is in use."""

MAKING = frozenset({"authoring", "demonstrations", "habits", "recipe", "teacher"})
"""Modules and folders of a world that make its tasks or scripted play. Of a stage that only plays, they are code where
what plays imports them, and not because the world's face names them."""

_MODULE_NAME = re.compile(r"(?:tasks|flows)(?:\.\w+)+")


@dataclass(frozen=True)
class InUse:
    """The names of the kinds that parameters, or a stage's inputs, name."""

    world: str
    engine: str
    trains_base: bool = False
    """Whether the base policy is trained by the world's recipe."""

    @classmethod
    def by(cls, section: Any) -> "InUse":
        """Return the names in `section`: Params, or the inputs of a stage that plays."""
        return cls(section.world.name, section.engine.name, section.policy.is_recipe)

    def of(self, kinds: Kinds) -> str:
        """Return the name of the kind in use."""
        name: str = getattr(self, kinds.noun)
        return name


def stage_files(stage: Stage, root: Path, used: InUse) -> dict[str, Path]:
    """Return the files that `stage` runs, by name: modules it imports (directly or not) and data files next to them.

    Raises ValueError when its body does not exist.
    """
    if _module_file(root, stage.module) is None:
        raise ValueError(f"stage {stage.name}: no module {stage.module}")
    found, modules = closure([stage.module], root)
    packaged: dict[str, Path] = {}
    for finder, kinds in FINDERS.items():
        if finder in found and (kinds is not WORLDS or _runs_world(stage, used)):
            brought = _package_of(kinds, used)
            begun = _imported_by(brought.values()) if brought else _modules_in(kinds, used.of(kinds), root, stage.makes)
            modules |= closure(begun, root, makes=stage.makes)[1]
            packaged |= brought
    files = modules | {file for folder in {module.parent for module in modules} for file in _data_files(folder)}
    return {file.relative_to(root).as_posix(): file for file in sorted(files)} | packaged


def _runs_world(stage: Stage, used: InUse) -> bool:
    return used.trains_base or not stage.runs_recipe_alone


def code_version(stage: Stage, root: Path, used: InUse) -> str:
    """SHA-256 over the names and contents of the files that `stage` runs, in hexadecimal."""
    return digest_of_code((name, digest(file)) for name, file in stage_files(stage, root, used).items())


def stage_packages(used: InUse) -> dict[str, Path]:
    """Return the files of installed packages that stages run, by name."""
    return {name: file for kinds in FINDERS.values() for name, file in _package_of(kinds, used).items()}


def _package_of(kinds: Kinds, used: InUse) -> dict[str, Path]:
    """Return the files of the installed package that brings a kind, by name; none for the project's own kinds."""
    name = used.of(kinds)
    distribution = kinds.distribution(name)
    return {} if distribution is None else package_files(distribution, kinds.module(name))


def _modules_in(kinds: Kinds, name: str, root: Path, makes: bool) -> list[str]:
    """Return the modules in the folder of one of the project's own kinds: all, or those that play."""
    folder = root.joinpath(*kinds.package.split("."), name)
    modules = [".".join(file.relative_to(root).with_suffix("").parts) for file in sorted(folder.rglob("*.py"))]
    return [module for module in modules if makes or _plays(module)]


def _plays(module: str) -> bool:
    return MAKING.isdisjoint(module.split("."))


def _imported_by(files: Iterable[Path]) -> list[str]:
    """Return the modules of the project that files of a package import."""
    modules = [file for file in files if file.suffix == ".py"]
    return sorted({name for file in modules for name in _imports(file, file.stem) if name.startswith("tasks.")})


def closure(
    names: Iterable[str], root: Path, known: Iterable[str] = SHELL, *, makes: bool = True
) -> tuple[set[str], set[Path]]:
    """Return the modules that importing `names` can lead to, by name and by file; those of `known` lead nowhere.

    `makes` False: leaves out what faces name and only makes tasks, or scripted play.
    """
    found: set[Path] = set()
    seen = set(known)
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) in seen:
            continue
        seen.add(name)
        if file := _module_file(root, name):
            found.add(file)
            named = _imports(file, name) if makes or file.stem != FACE else filter(_plays, _imports(file, name))
            waiting += [*named, *_parents(name)]
    return seen, found


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


def package_files(distribution: Distribution, module: str) -> dict[str, Path]:
    """Return the files of a distribution, and those of the package in which `module` lies, by name.

    An editable install lists none of its files; those of the package are found where it is imported from. A name is
    the same for both ways to install: "loopline-key-value==0.1.0/loopline_key_value/kind.py".
    """
    home = package_home(module)
    found = {file.relative_to(home.parent).as_posix(): file for file in _code_in(home)}
    found |= {path: file for path, file in _listed(distribution) if _is_code(file)}
    prefix = f"{distribution.name}=={distribution.version}/"
    return {prefix + path: found[path] for path in sorted(found)}


def _listed(distribution: Distribution) -> Iterator[tuple[str, Path]]:
    for path in distribution.files or ():
        if not path.parts[0].endswith(".dist-info") and not path.parts[0].endswith(".pth"):
            yield path.as_posix(), Path(str(distribution.locate_file(path)))


def _code_in(home: Path) -> Iterator[Path]:
    return filter(_is_code, home.rglob("*") if home.is_dir() else iter([home]))


def _is_code(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"
