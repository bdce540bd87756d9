"""A DVC project in a folder of its own: a checkout's code, and nothing that ran in it."""

import shutil
from configparser import ConfigParser
from pathlib import Path

_FOLDERS = ("tasks", "flows", "data/base_policies")
_FILES = ("dvc.yaml", ".dvcignore", ".gitignore", "pyproject.toml", "prefect.yaml")


def make_project(code: Path, folder: Path) -> None:
    """Make a project (without git) with the code of the checkout `code`, byte code included; it has no params.yaml.

    Byte code that another process is about to write is left out.
    """
    for name in _FOLDERS:
        shutil.copytree(code / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    for name in _FILES:
        shutil.copy2(code / name, folder)
    (folder / ".dvc").mkdir()
    settings = ConfigParser()
    settings.read(code / ".dvc" / "config", encoding="utf-8")
    settings.read_dict({"core": {"no_scm": "true"}})
    with (folder / ".dvc" / "config").open("w", encoding="utf-8") as stream:
        settings.write(stream)
