import json

import pytest

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import WorldInputs
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.pocketworld.authoring import write_specs
from tasks.core.worlds.pocketworld.problem import TaskSpec
from tasks.prepare_world import prepare_world


@pytest.fixture
def folder(tmp_path, specs):
    write_specs(tmp_path / "world", specs)
    return tmp_path / "world"


def rewrite(path, number, **changes):
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | changes)
    path.write_text("\n".join(lines) + "\n")


def test_what_is_written_is_read(folder, specs):
    assert read_tasks(folder, TaskSpec) == specs


def test_the_same_seed_writes_the_same_bytes(folder, tmp_path):
    prepare_world_folder(WorldSection.of("pocketworld", seed=2502), tmp_path / "again")
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "world"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"template": "fly"}, "unknown template 'fly'"),
        ({"apps": ["todo"]}, r"template create has no apps \['todo'\]"),
        ({"difficulty": 2}, "difficulty 2, but template create has 1"),
    ],
)
def test_a_broken_line_is_named(folder, changes, rule):
    rewrite(folder / "train.jsonl", 2, **changes)
    with pytest.raises(ArtifactError, match=rf"train\.jsonl: line 2: .*{rule}"):
        read_tasks(folder, TaskSpec)


def test_an_altered_task_cannot_be_opened(folder):
    rewrite(folder / "train.jsonl", 1, seed=5)
    world = open_world(WorldSection.of("pocketworld"), folder)
    with pytest.raises(ArtifactError, match="train_001_1"):
        world.open("train_001_1", 0)


def test_the_stage_replaces_what_was_there(tmp_path, specs):
    layout = Layout(tmp_path)
    layout.world.mkdir(parents=True)
    (layout.world / "stale").touch()
    params = Params(iterations=2, world=WorldSection.of("pocketworld", seed=2502))
    prepare_world(StageContext(layout, WorldInputs.of(params)))
    assert sorted(path.stem for path in layout.world.iterdir()) == sorted(specs)
    assert read_tasks(layout.world, TaskSpec) == specs
