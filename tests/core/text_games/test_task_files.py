"""Broken files of tasks: one error that names file, line and rule."""

import json
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.task_files import read_tasks, task_names, write_tasks
from tasks.core.worlds.webshop.catalogue import GoalTask

BROKEN = [
    ("sokoban", {"room": "####\n#PX#\n####"}, "as many boxes as targets"),
    ("sokoban", {"room": "####\n#PX\n####"}, "rows of equal length"),
    ("sokoban", {"room": "#####\n#PXOO\n#####"}, "walls all around"),
    ("sokoban", {"room": "#####\n#PX?#\n#####"}, r"found '\?'"),
    ("sokoban", {"solution": "UDUDUDUDU"}, "cannot be walked in its room|does not solve its room"),
    ("sokoban", {"solution": ""}, "does not solve its room"),
    ("sokoban", {"symbols": "odd"}, "symbols: Input should be 'usual' or 'new'"),
    ("frozen_lake", {"map": ["SFH", "FHH", "HHG"]}, "no path from S to G"),
    ("frozen_lake", {"map": ["SF", "FFG"]}, "rows of equal length"),
    ("frozen_lake", {"map": ["SF", "FF"]}, "one S and one G"),
    ("frozen_lake", {"map": []}, "a map must have rows"),
    ("bandit", {"risky": "phoenix", "safe": "Phoenix"}, "two different names"),
    ("bandit", {"difficulty": 4}, "difficulty: Input should be less than or equal to 3"),
    ("bandit", {"split": "train"}, "split 'train' in the file of 'dev'"),
    ("bandit", {"task_id": "dev_001_1"}, "task id dev_001_1 is already in .*line 1"),
    ("pocketworld", {"template": "fly"}, "unknown template 'fly'"),
    ("pocketworld", {"apps": ["todo"]}, r"template create has no apps \['todo'\]"),
    ("pocketworld", {"difficulty": 2}, "difficulty 2, but template create has 1"),
]


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    prepare_world_folder(WorldSection.of(request.param), tmp_path / "world")
    return tmp_path / "world"


@pytest.mark.parametrize(("folder", "changes", "rule"), BROKEN, indirect=["folder"], ids=lambda value: str(value)[:40])
def test_a_broken_task_is_named(
    folder: Path, changes: dict[str, object], rule: str, request: pytest.FixtureRequest
) -> None:
    path = folder / "dev.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | changes)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ArtifactError, match=rf"dev\.jsonl: line 2: .*({rule})"):
        open_world(WorldSection.of(request.node.callspec.params["folder"]), folder)


@pytest.mark.parametrize("folder", ["sokoban"], indirect=True)
def test_a_missing_or_truncated_file_is_named(folder: Path) -> None:
    path = folder / "dev.jsonl"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ArtifactError, match=r"dev\.jsonl: line 48: line: .*delete the folder and run"):
        open_world(WorldSection.of("sokoban"), folder)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"dev\.jsonl: missing"):
        open_world(WorldSection.of("sokoban"), folder)


def test_a_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    """People who wrote WebShop's instructions pasted other ends of lines into them."""
    names = {**task_names("dev", 0), "difficulty": 1, "split": "dev"}
    said = "one\u2028two\u2029three\x85four\r\nfive"
    task = GoalTask(**names, instruction=said, asin="B01", attributes=("soft",), highest_price=20.0)
    write_tasks(tmp_path / "world", {split: [task] if split == "dev" else [] for split in SPLITS})
    assert read_tasks(tmp_path / "world", GoalTask)["dev"] == [task]
