"""The README's map of the rooms against the tree and the registry of stages."""

import re
from pathlib import Path

from flows.dag.stages import STAGES

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("flows", "tasks", "tasks/core")
"""Folders whose every room must be on the map."""


def _rooms() -> dict[str, str]:
    """{"tasks/core/records": caption}: the folders of the README's map, in its order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The house")[2]
    rooms: dict[str, str] = {}
    parents: list[str] = []
    for indent, name, caption in re.findall(r"^    ( *)([\w.]+)/ +(.*)$", text.partition("\n## ")[0], re.MULTILINE):
        parents = [*parents[: len(indent) // 2], name]
        rooms["/".join(parents)] = caption
    return rooms


def _folders(parent: str) -> set[str]:
    return {
        f"{parent}/{path.name}" for path in (ROOT / parent).iterdir() if path.is_dir() and path.name != "__pycache__"
    }


def test_every_room_is_on_the_map_and_no_other() -> None:
    mapped = {room for room in _rooms() if room.rpartition("/")[0] in MAPPED}
    assert mapped == set().union(*(_folders(parent) for parent in MAPPED))


def test_the_map_names_the_stages_in_the_order_of_the_pipeline_and_in_their_rooms() -> None:
    at = {name: room for room, caption in _rooms().items() for name in re.findall(r"`(\w+)`", caption)}
    stages = [stage for stage in STAGES if stage.name in at]
    assert list(at) == [stage.name for stage in stages]
    assert {stage.name for stage in STAGES} - set(at) == {"version_stages"}
    for stage in stages:
        assert stage.module.startswith(at[stage.name].replace("/", ".") + "."), stage.name
