"""Splits, scenarios and difficulties of the package's tasks, and the pinned list of its interpreter."""

from collections import Counter
from pathlib import Path

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.task_files import write_tasks
from tasks.core.worlds.bfcl.interpreter import BFCL
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.settings import BfclConfig
from tasks.core.worlds.bfcl.world import BfclTask, BfclWorld, difficulty, open_bfcl, parted, scenario_splits

KINDS = {"train": 75, "dev": 15, "test_normal": 60, "test_challenge": 50}


def test_requirements_are_pinned_and_name_no_index() -> None:
    lines = BFCL.requirements.read_text().splitlines()
    assert "bfcl-eval==2026.3.23" in lines and not BFCL.dependencies
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_every_block_is_parted_alike_and_travel_is_the_challenge() -> None:
    splits = scenario_splits(5)
    assert sorted(splits) == list(range(200)) and Counter(splits.values()) == KINDS
    for begin in (0, 50, 100):
        part = Counter(splits[index] for index in range(begin, begin + 50))
        assert part == {"train": 25, "dev": 5, "test_normal": 20}
    assert {splits[index] for index in range(150, 200)} == {"test_challenge"}
    assert scenario_splits(5) == splits != scenario_splits(6)


@pytest.mark.parametrize(("calls", "level"), [(1, 1), (4, 1), (5, 2), (6, 2), (7, 3), (20, 3)])
def test_difficulty_is_the_number_of_calls(calls: int, level: int) -> None:
    assert difficulty(calls) == level


def test_the_longest_episode_is_known() -> None:
    assert BfclConfig().most_turns == 8 * 21


def test_a_broken_task_file_is_named_with_line_and_rule(tmp_path: Path) -> None:
    listed = [
        {"id": f"multi_turn_{kind}_{index}", "calls": 4, "instruction": "Do."}
        for index in range(200)
        for kind in ("base", "miss_func", "miss_param", "long_context")
    ]
    write_tasks(tmp_path / "world", parted(listed, 1))
    path = tmp_path / "world" / "dev.jsonl"
    path.write_text(path.read_text().replace('"difficulty":1', '"difficulty":9', 1))
    with pytest.raises(ArtifactError, match=r"dev\.jsonl: line 1: difficulty"):
        open_bfcl(BfclConfig(), "first", tmp_path / "world")
    assert BfclTask.model_fields.keys() >= {"instruction"}


@pytest.mark.bfcl
def test_the_packages_tasks_are_those_that_the_mapping_assumes(pool: BfclPool, world: BfclWorld) -> None:
    listed = pool.tasks()
    assert len(listed) == 800
    blocks = ("GorillaFileSystem", "VehicleControlAPI", "TradingBot", "TravelAPI")
    for one in listed:
        assert blocks[int(one["id"].rpartition("_")[2]) // 50] in one["classes"], one["id"]
        assert len(pool.task(one["id"])["turns"]) <= 8
    base = Counter(difficulty(one["calls"]) for one in listed if "base" in one["id"])
    assert base == {1: 52, 2: 86, 3: 62}
    assert {split: len(world.tasks(split)) for split in SPLITS} == {split: 4 * count for split, count in KINDS.items()}
