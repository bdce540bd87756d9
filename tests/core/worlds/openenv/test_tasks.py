"""From the splits of params.yaml to data/world."""

from pathlib import Path

import pytest

from flows.profile_stack import stacked
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import prepare_world_folder
from tasks.core.records.files import ArtifactError
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.openenv.conversation import ResetTask, filled, write_openenv
from tasks.core.worlds.openenv.kind import OpenEnvConfig, OpenEnvScenario, OpenEnvSplits, OpenEnvTask
from tasks.core.worlds.pocketworld.world import read_specs

DRAWN = OpenEnvScenario(instruction="Play.", count=2)
LISTED = OpenEnvScenario(
    instruction="Win.",
    difficulty=3,
    tasks=tuple(OpenEnvTask(reset={"level": {"id": "$index"}, "seed": "$rollout_seed"}) for _ in range(4)),
)


def config(**splits: tuple[OpenEnvScenario, ...]) -> OpenEnvConfig:
    all_of_them = dict.fromkeys(("dev", "test_normal", "test_challenge"), (DRAWN,))
    return OpenEnvConfig(action={"message": "$text"}, splits=OpenEnvSplits(**(all_of_them | splits)))


def test_scenarios_are_counted_and_what_stands_for_numbers_is_filled_in(tmp_path: Path) -> None:
    write_openenv(config(train=(DRAWN, LISTED)), 1, tmp_path / "world")
    tasks = read_tasks(tmp_path / "world", ResetTask)
    train = tasks["train"]
    assert [task.task_id for task in train[:4]] == ["train_001_1", "train_001_2", "train_001_3", "train_002_1"]
    assert [task.scenario_id for task in train[6:]] == ["train_003"] * 4
    assert [task.difficulty for task in train] == [1] * 6 + [3] * 4
    assert [task.reset["level"] for task in train[6:]] == [{"id": number} for number in range(4)]
    seeds = [task.reset["seed"] for part in tasks.values() for task in part if task.reset["seed"] != "$rollout_seed"]
    assert len(set(seeds)) == len(seeds) == 24
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)
    assert filled(train[6].reset, {"$rollout_seed": 7}) == {"level": {"id": 0}, "seed": 7}


def test_entries_count_on_from_their_first_index(tmp_path: Path) -> None:
    entry = OpenEnvScenario(instruction="Win.", count=2, tasks=LISTED.tasks[:3])
    later = entry.model_copy(update={"first": 6, "difficulty": 2})
    write_openenv(config(train=(entry, later)), 1, tmp_path / "world")
    train = read_tasks(tmp_path / "world", ResetTask)["train"]
    assert [task.reset["level"] for task in train] == [{"id": number} for number in range(12)]


def test_the_profile_says_what_pocketworld_serves(tmp_path: Path) -> None:
    profile = OpenEnvConfig.model_validate(stacked(["openenv"])["world"]["openenv"])
    write_openenv(profile, 1, tmp_path / "served")
    prepare_world_folder(WorldSection.of("pocketworld"), tmp_path / "world")
    told = read_tasks(tmp_path / "served", ResetTask)
    for split, specs in read_specs(tmp_path / "world").items():
        assert [task.difficulty for task in told[split]] == [spec.difficulty for spec in specs]
        assert [(task.reset["split"], task.reset["index"]) for task in told[split]] == [
            (split, number) for number in range(len(specs))
        ]


def test_a_section_that_says_too_little_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"world.openenv.splits.train is empty"):
        write_openenv(config(), 1, tmp_path / "world")
    with pytest.raises(ArtifactError, match=r"world.openenv.action is empty"):
        write_openenv(OpenEnvConfig(), 1, tmp_path / "world")
    assert not (tmp_path / "world").exists()
