"""The files of an installed package that brings a world or an engine: they are code of the run as the project's are."""

from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from tasks.core.config.kinds import package_home


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
