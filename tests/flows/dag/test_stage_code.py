"""The code version changes with every file that a stage runs, and with no other."""

import ast
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from flows.dag.stage_code import MAKING, SHELL, InUse, _parsed, code_version, stage_files
from flows.dag.stages import STAGES, Stage, find_stage
from flows.params_file import params_of
from flows.profile_stack import profile_names
from tasks.core.config.engine import ENGINES
from tasks.core.config.stage_inputs import StageInputs
from tasks.core.config.world import WORLDS, WorldSection
from tasks.core.interfaces.world_kind import prepare_world_folder

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).resolve().parents[3]
USED = InUse.by(params_of("default"))
WORLDS_FOLDER, ENGINES_FOLDER = "tasks/core/worlds/", "tasks/core/engines/"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "tasks/__init__.py": "",
        "tasks/room/__init__.py": "",
        "tasks/room/stage.py": "import json\nfrom tasks.room import core\n\ndef body(context): from .late import x\n",
        "tasks/room/core.py": 'WORLDS = {"a": "tasks.core.worlds.first:World"}\n',
        "tasks/room/late.py": "x = 1\n",
        "tasks/room/unused.py": "x = 1\n",
        "tasks/room/pages/page.html": "<p>",
        "tasks/core/worlds/__init__.py": "",
        "tasks/core/worlds/first.py": "",
        "tasks/core/worlds/second.py": "",
        "tasks/core/config/params.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


STAGE = Stage("s", "tasks.room.stage:body", StageInputs)


def test_closure_follows_imports_strings_and_data_files(project: Path) -> None:
    assert {*stage_files(STAGE, project, USED)} == {
        "tasks/__init__.py",
        "tasks/room/__init__.py",
        "tasks/room/stage.py",
        "tasks/room/core.py",
        "tasks/room/late.py",
        "tasks/room/pages/page.html",
        "tasks/core/worlds/__init__.py",
        "tasks/core/worlds/first.py",
    }


@pytest.mark.parametrize("name", ["room/late.py", "room/pages/page.html", "core/worlds/first.py", "room/__init__.py"])
def test_version_moves_with_what_it_runs(project: Path, name: str) -> None:
    before = code_version(STAGE, project, USED)
    (project / "tasks" / name).write_text("changed = True\n")
    assert code_version(STAGE, project, USED) != before


@pytest.mark.parametrize("name", ["room/unused.py", "core/worlds/second.py", "core/config/params.py"])
def test_version_stays_for_files_that_it_does_not_run(project: Path, name: str) -> None:
    before = code_version(STAGE, project, USED)
    (project / "tasks" / name).write_text("changed = True\n")
    assert code_version(STAGE, project, USED) == before


@pytest.mark.parametrize("name", [".core.py.swp", "core.py.orig", "core.py.rej", "pages/page.html~", ".DS_Store"])
def test_version_stays_for_files_that_tools_leave_next_to_the_code(project: Path, name: str) -> None:
    before = code_version(STAGE, project, USED)
    (project / "tasks" / "room" / name).write_text("changed = True\n")
    assert code_version(STAGE, project, USED) == before


def test_a_body_that_does_not_exist_is_an_error(project: Path) -> None:
    with pytest.raises(ValueError, match=r"stage s: no module tasks\.room\.gone"):
        code_version(Stage("s", "tasks.room.gone:body"), project, USED)


IMPORT_EACH = """
import importlib, json, sys
def ours():
    return [name for name in sys.modules if name.partition(".")[0] in ("tasks", "flows")]
found = {}
for module in sys.argv[1:]:
    for name in ours():
        del sys.modules[name]
    importlib.import_module(module)
    found[module] = [sys.modules[name].__file__ for name in ours()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """Return the project's files that importing each stage's module loads, as an independent check.

    One interpreter serves all stages; it keeps libraries, and forgets the project's own modules between two of them.
    """
    modules = sorted({stage.module for stage in STAGES})
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORT_EACH, *modules]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    files: dict[str, list[str]] = json.loads(done.stdout)
    return files


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_closure_covers_what_python_really_imports(stage: Stage, imported: dict[str, list[str]]) -> None:
    loaded = {Path(name) for name in imported[stage.module]}
    place = ROOT.joinpath(*stage.module.split("."))
    assert loaded & {place.with_suffix(".py"), place / "__init__.py"}
    missing = loaded - {*stage_files(stage, ROOT, USED).values()}
    assert {file.relative_to(ROOT).as_posix() for file in missing} <= shell_files()


def shell_files() -> set[str]:
    """Return the files of tasks.core.config.params: parsing and defaults, whose results the version has as values."""
    shell = {name.replace(".", "/") + ".py" for name in SHELL}
    configs = [file.relative_to(ROOT) for file in (ROOT / "tasks/core/config").glob("*.py")] + [*map(Path, shell)]
    packages = {folder / "__init__.py" for config in configs for folder in config.parents}
    return shell | {file.as_posix() for file in {*configs, *packages}}


def world_files(name: str) -> set[str]:
    """Return the files of code in a world's folder."""
    files = WORLDS.folder(name).rglob("*")
    return {file.relative_to(ROOT).as_posix() for file in files if file.is_file() and "__pycache__" not in file.parts}


@pytest.mark.parametrize("profile", [None, *WORLDS.own_names()])
def test_a_version_covers_the_world_in_use_and_no_other(profile: str | None) -> None:
    """Editing any file of another world leaves every stage up to date; a file of the world in use does not."""
    name = profile or "pocketworld"
    used = InUse.by(params_of(profile if profile in profile_names() else "default"))
    assert used.world == name
    own = world_files(name)
    playing = {file for file in own if MAKING.isdisjoint(Path(file).with_suffix("").parts)}
    for stage in STAGES[1:]:
        files = {file for file in stage_files(stage, ROOT, used) if file.startswith(WORLDS_FOLDER)}
        assert files <= own | {f"{WORLDS_FOLDER}__init__.py"}, stage.name
    for making in ("prepare_world", "warm_start"):
        assert own <= {*stage_files(find_stage(making), ROOT, used)}
    for running in ("filter_tasks", "collect_rollouts", "evaluate_policy", "score", "report"):
        assert playing <= {*stage_files(find_stage(running), ROOT, used)}
    for deaf in ("update_policy", "filter_advantages", "select_checkpoint", "preflight", "record_lineage"):
        assert not own & {*stage_files(find_stage(deaf), ROOT, used)}


PLAY = """
import json, sys
from pathlib import Path
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world_kind import open_world
world = open_world(WorldSection.of(sys.argv[1]), Path(sys.argv[2]))
task = world.tasks("train")[0].task_id
episode = world.open(task, 0)
try:
    turns = world.demonstration(task)
except ValueError:
    turns = ["<think>x</think><answer>Left</answer>"]
for turn in turns:
    episode.step(turn)
episode.evaluate(), episode.close(), world.close()
print(json.dumps([module.__file__ for name, module in sys.modules.items() if name.startswith("tasks.core.worlds.")]))
"""


@pytest.mark.parametrize("name", ["bandit", "frozen_lake", "pocketworld", "sokoban", "webshop"])
def test_what_only_makes_a_world_is_never_imported_where_it_is_played(name: str, tmp_path: Path) -> None:
    prepare_world_folder(WorldSection.of(name), tmp_path / "world")
    command = [sys.executable, "-c", PLAY, name, str(tmp_path / "world")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    version = {*stage_files(find_stage("collect_rollouts"), ROOT, InUse(name, "transformers")).values()}
    assert {Path(file) for file in json.loads(done.stdout)} <= version
    teaching = {"recipe.py", "teacher.py", "habits.py", "demonstrations.py"}
    assert not teaching & {file.name for file in version if file.is_relative_to(WORLDS.folder(name))}


def test_prepare_policy_runs_the_world_only_where_its_recipe_trains_the_base() -> None:
    stage, own = find_stage("prepare_policy"), world_files("pocketworld")
    assert not own & {*stage_files(stage, ROOT, USED)}
    trained = InUse.by(params_of("default", ["policy.source=recipe"]))
    assert own <= {*stage_files(stage, ROOT, trained)}


@pytest.mark.parametrize("engine", ENGINES.own_names())
def test_a_version_covers_the_engine_in_use_and_no_other(engine: str) -> None:
    used = InUse("pocketworld", engine)
    own = {file.relative_to(ROOT).as_posix() for file in ENGINES.folder(engine).rglob("*.py")}
    for playing in ("collect_rollouts", "evaluate_policy", "score"):
        files = {file for file in stage_files(find_stage(playing), ROOT, used) if file.startswith(ENGINES_FOLDER)}
        python = {file for file in files if file.endswith(".py")} - {f"{ENGINES_FOLDER}__init__.py"}
        assert python == own
    for deaf in ("update_policy", "filter_advantages", "select_checkpoint", "prepare_world", "record_lineage"):
        assert not own & {*stage_files(find_stage(deaf), ROOT, used)}


def test_what_a_stage_runs_of_the_default_is_small() -> None:
    files = stage_files(find_stage("collect_rollouts"), ROOT, USED)
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files.values()) <= 12_000


@pytest.fixture
def waiting_collector() -> Iterator[None]:
    """Make garbage collection yield to other threads, and happen often."""
    before = gc.get_threshold()
    gc.set_threshold(500)
    gc.callbacks.append(give_way)
    yield
    gc.callbacks.remove(give_way)
    gc.set_threshold(*before)


def give_way(phase: str, info: dict[str, int]) -> None:
    time.sleep(0)


def test_another_thread_may_parse_at_the_same_time(waiting_collector: None) -> None:
    """Python up to 3.12 then fails with a SystemError."""
    file = ROOT / "tasks" / "core" / "engines" / "vllm" / "engine.py"

    def parse(times: int) -> None:
        for _ in range(times):
            with suppress(SystemError):
                ast.parse(file.read_bytes())

    with ThreadPoolExecutor(1) as other:
        parsing = other.submit(parse, 200)
        while not parsing.done():
            _parsed(file)
