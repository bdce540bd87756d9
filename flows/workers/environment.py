"""The versions that a worker must have in common with the pipeline, besides the code, to play the same rollouts."""

import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("loopline", "torch", "transformers")


def environment() -> dict[str, str]:
    """Return the versions of this process's Python and packages."""
    return {"Python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Return the first difference of a worker from the pipeline in words, None if there is none."""
    for name, wanted in ours.items():
        found = theirs.get(name, "none")
        if _release(found) != _release(wanted):
            return f"{name} {found}, the pipeline has {wanted}"
    return None


def _release(found: str) -> str:
    """Leave out the build: a pipeline without a GPU may have workers with one ("2.9.1+cpu" and "2.9.1+cu128")."""
    return re.sub(r"\+.*", "", found)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
