import json

import pytest

from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import WorldInputs
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.worlds.pocketworld.authoring import write_specs
from tasks.core.worlds.pocketworld.world import read_specs
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
    assert read_specs(folder) == specs


def test_the_same_seed_writes_the_same_bytes(folder, tmp_path):
    prepare_world_folder(WorldSection.of("pocketworld", seed=2502), tmp_path / "again")
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "world"]


def test_a_truncated_line_is_named(folder):
    path = folder / "dev.jsonl"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ArtifactError, match=r"dev\.jsonl: line 60: truncated"):
        read_specs(folder)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"template": "fly"}, "unknown template 'fly'"),
        ({"apps": ["todo"]}, r"template create has no apps \['todo'\]"),
        ({"difficulty": 2}, "difficulty 2, but template create has 1"),
        ({"difficulty": "hard"}, "difficulty: Input should be a valid integer"),
        ({"split": "dev"}, "split 'dev' in the file of 'train'"),
        ({"task_id": "train_001_1"}, "duplicate task id train_001_1"),
        ({"extra": 1}, "extra: Unexpected keyword argument"),
    ],
)
def test_a_broken_line_is_named(folder, changes, rule):
    rewrite(folder / "train.jsonl", 2, **changes)
    with pytest.raises(ArtifactError, match=rf"train\.jsonl: line 2: {rule}"):
        read_specs(folder)


def test_a_line_that_is_no_json_is_named(folder):
    path = folder / "train.jsonl"
    path.write_text(path.read_text().replace("{", "", 1))
    with pytest.raises(ArtifactError, match=r"train\.jsonl: line 1: not valid JSON"):
        read_specs(folder)


def test_a_missing_split_is_named(folder):
    (folder / "test_normal.jsonl").unlink()
    with pytest.raises(ArtifactError, match=r"test_normal\.jsonl: missing"):
        open_world(WorldSection.of("pocketworld"), folder)


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
    assert read_specs(layout.world) == specs
