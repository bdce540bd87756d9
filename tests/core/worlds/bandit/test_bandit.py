"""The bandit: what the arms pay, which one is right, and what the splits show."""

from pathlib import Path

import numpy as np
import pytest

from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.text_games.episode import answer_text
from tasks.core.worlds.bandit.kind import BanditConfig
from tasks.core.worlds.bandit.world import open_bandit, write_bandit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bandit(BanditConfig(), 1, tmp_path / "world")
    return tmp_path / "world"


def test_arms_pay_what_they_should(folder: Path) -> None:
    world = open_bandit(BanditConfig(), "first", folder)
    paid = {
        arm: [world.open("train_001_1", seed).step(answer_text([arm], "x")).reward for seed in range(4000)]
        for arm in ("phoenix", "Dragon")
    }
    assert set(paid["phoenix"]) == {0.15}
    assert set(paid["Dragon"]) == {0.0, 1.0}
    assert np.mean(paid["Dragon"]) == pytest.approx(0.25, abs=0.03)


def test_a_task_is_solved_by_the_arm_that_pays_more_on_average(folder: Path) -> None:
    world = open_bandit(BanditConfig(), "first", folder)
    for arm in ("Phoenix", "Dragon"):
        episode = world.open("dev_001_1", 7)
        assert episode.step(answer_text([arm], "x")).done
        assert episode.evaluate().success == (arm == "Dragon")


def test_splits_are_as_trained_reversed_and_unseen(tmp_path: Path) -> None:
    config = WorldSection.of("bandit")
    prepare_world_folder(config, tmp_path / "world")
    world = open_world(config, tmp_path / "world")
    right = {
        split: {world.demonstration(task.task_id)[0] for task in world.tasks(split)}  # type: ignore[attr-defined]
        for split in ("train", "dev", "test_normal", "test_challenge")
    }
    assert right["train"] == right["dev"] != right["test_normal"]
    answers = [found.pop().partition("<answer>")[2].partition("<")[0] for found in right.values()]
    assert answers == ["Dragon", "Dragon", "Phoenix", "Librarian"]
    instructions = {task.instruction for task in world.tasks("train")}
    assert instructions == {"Choose between Dragon and Phoenix.", "Choose between Phoenix and Dragon."}
