"""The maps of docs/code.md and of the README compared with the tree and the registry of stages."""

import re
from pathlib import Path

from flows.dag.stages import STAGES

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("flows", "tasks", "tasks/core")
"""Folders whose every folder must be on the whole map."""


def _paths(page: str, margin: str) -> list[str]:
    """Return folders and modules of a page's map, in its order: ["tasks", "tasks/prepare_world.py", ...]."""
    text = (ROOT / page).read_text(encoding="utf-8")
    paths: list[str] = []
    parents: list[str] = []
    for indent, name in re.findall(rf"^{margin}( *)(\w+(?:/|\.py)) +\S.*$", text, re.MULTILINE):
        parents = [*parents[: len(indent) // 2], name.rstrip("/")]
        paths.append("/".join(parents))
    return paths


def _mapped() -> list[str]:
    return _paths("docs/code.md", "")


def _folders(parent: str) -> set[str]:
    return {
        f"{parent}/{path.name}" for path in (ROOT / parent).iterdir() if path.is_dir() and path.name != "__pycache__"
    }


def test_every_folder_is_on_the_map_and_no_other() -> None:
    mapped = {path for path in _mapped() if path.rpartition("/")[0] in MAPPED and not path.endswith(".py")}
    assert mapped == set().union(*(_folders(parent) for parent in MAPPED))


def test_the_map_lists_the_stages_in_the_order_of_the_pipeline() -> None:
    mapped = [path for path in _mapped() if path.rpartition("/")[0] == "tasks" and path != "tasks/core"]
    assert all((ROOT / path).exists() for path in mapped)
    names = [path.removeprefix("tasks/").removesuffix(".py") for path in mapped]
    assert names == [stage.name for stage in STAGES if stage.name != "version_stages"]


def test_the_readme_maps_the_code_in_ten_lines() -> None:
    mapped = _paths("README.md", "    ")
    assert {"flows", "tasks", "tasks/core", "tests", "docs"} <= set(mapped)
    assert len(mapped) <= 10
    assert [path for path in mapped if not (ROOT / path).is_dir()] == []
