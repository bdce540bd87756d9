"""Worlds and engines are found by name: folders of this repository, then installed packages."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.core.config.engine import ENGINES, EngineSection
from tasks.core.config.kinds import PROJECT, Kinds, UnknownKind
from tasks.core.config.world import WORLDS, WorldSection
from tasks.core.interfaces.engine_kind import EngineKind, find_engine
from tasks.core.interfaces.world_kind import WorldKind, find_world

KINDS = Kinds("colour", "tests.no_such_package", "COLOUR", "loopline.test_colours")


def install(folder: Path, package: str, name: str, value: str = "COLOUR = 'a face'\n") -> None:
    """Lay a distribution into `folder` as pip leaves one, with a module that holds a face."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(value)
    about = folder / f"{module}-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (about / "entry_points.txt").write_text(f"[{KINDS.group}]\n{name} = {module}:COLOUR\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_folder_of_worlds_has_a_face_with_its_settings() -> None:
    folders = {path.name for path in (PROJECT / "tasks/core/worlds").iterdir() if path.is_dir()} - {"__pycache__"}
    assert {*WORLDS.own_names()} == folders
    for name in folders:
        world = find_world(name)
        assert isinstance(world, WorldKind)
        assert type(WorldSection.of(name).settings) is world.settings
        assert WORLDS.distribution(name) is None


def test_every_folder_of_engines_has_a_face_with_its_settings() -> None:
    folders = {path.name for path in (PROJECT / "tasks/core/engines").iterdir() if path.is_dir()} - {"__pycache__"}
    assert {*ENGINES.own_names()} == folders == {"chat_api", "oracle", "scripted", "transformers", "vllm"}
    for name in folders:
        engine, section = find_engine(name), EngineSection.of(name)
        assert isinstance(engine, EngineKind) and section.kind is engine
        assert section.own is None if engine.settings is None else type(section.own) is engine.settings
        assert type(engine).__module__ == ENGINES.module(name) and ENGINES.distribution(name) is None


def test_faces_load_nothing_heavy() -> None:
    """They are imported whenever params.yaml is read."""
    code = (
        "import sys; from tasks.core.config.world import WORLDS; from tasks.core.config.engine import ENGINES; "
        "[kinds.find(name) for kinds in (WORLDS, ENGINES) for name in kinds.own_names()]; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert {"torch", "transformers", "openai", "aiohttp", "openenv", "gymnasium", "bm25s", "fastapi"} & {
        *done.stdout.split()
    } == set()


def test_an_installed_package_brings_a_kind(site: Path) -> None:
    install(site, "some-colours", "teal")
    assert KINDS.find("teal") == "a face" and KINDS.has("teal") and KINDS.names() == ["teal"]
    found = KINDS.distribution("teal")
    assert found is not None and (found.name, found.version) == ("some-colours", "1.5")
    assert KINDS.module("teal") == "some_colours"


def test_an_unknown_kind_is_named_with_those_that_there_are(site: Path) -> None:
    install(site, "some-colours", "teal")
    with pytest.raises(UnknownKind, match=r"no colour is called 'puce': there are teal; .* loopline\.test_colours"):
        KINDS.find("puce")
    for name in ("../worlds/sokoban", "", "sokoban.kind"):
        assert not WORLDS.has(name)


def test_two_packages_with_one_name_and_a_broken_package_are_named(site: Path) -> None:
    install(site, "first-colours", "red")
    install(site, "other-colours", "red")
    with pytest.raises(UnknownKind, match=r"colour red: more than one package brings it: .*first-colours 1\.5 .*other"):
        KINDS.find("red")
    install(site, "third-colours", "blue", "import nothing_of_this_name\n")
    with pytest.raises(
        UnknownKind, match=r"blue: third-colours 1\.5 \(third_colours:COLOUR\) is broken: ModuleNotFound"
    ):
        KINDS.find("blue")


def test_a_section_holds_the_named_kinds_own_section_alone() -> None:
    section = WorldSection.of("sokoban", seed=5, sokoban={"max_turns": 7}, bandit={"max_turns": 1}, appworld={})
    assert section.model_dump().keys() == {"name", "seed", "code_blocks", "sokoban"}
    assert section.settings.most_turns == 7
    with pytest.raises(ValidationError, match="nowhere"):
        WorldSection.of("sokoban", nowhere={})
    with pytest.raises(ValidationError, match="max_turns"):
        WorldSection.of("sokoban", sokoban={"max_turns": 0})


def test_a_section_is_pickled_by_its_content() -> None:
    """Shards of rollouts go to other processes and machines with it."""
    section = WorldSection.of("webshop", webshop={"source": "original", "root": "shop"})
    again = pickle.loads(pickle.dumps(section))
    assert again == section and again.settings.root == Path("shop")
