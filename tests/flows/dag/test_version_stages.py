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
import yaml

from flows.dag.stages import STAGES, Stage
from flows.dag.version_stages import SHELL, _parsed, code_version, stage_files, stage_version, version_stages
from tasks.core.config.params import Params, load_params
from tasks.core.config.stage_inputs import StageInputs, knob
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import StageVersions

ROOT = Path(__file__).resolve().parents[3]


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
    found = {file.relative_to(project).as_posix() for file in stage_files(STAGE, project)}
    assert found == {
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
    before = code_version(STAGE, project)
    (project / "tasks" / name).write_text("changed = True\n")
    assert code_version(STAGE, project) != before


@pytest.mark.parametrize("name", ["room/unused.py", "core/worlds/second.py", "core/config/params.py"])
def test_version_stays_for_files_that_it_does_not_run(project: Path, name: str) -> None:
    before = code_version(STAGE, project)
    (project / "tasks" / name).write_text("changed = True\n")
    assert code_version(STAGE, project) == before


@pytest.mark.parametrize("name", [".core.py.swp", "core.py.orig", "core.py.rej", "pages/page.html~", ".DS_Store"])
def test_version_stays_for_files_that_tools_leave_next_to_the_code(project: Path, name: str) -> None:
    before = code_version(STAGE, project)
    (project / "tasks" / "room" / name).write_text("changed = True\n")
    assert code_version(STAGE, project) == before


def test_a_body_that_does_not_exist_is_an_error(project: Path) -> None:
    with pytest.raises(ValueError, match=r"stage s: no module tasks\.room\.gone"):
        code_version(Stage("s", "tasks.room.gone:body"), project)


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
    missing = loaded - stage_files(stage, ROOT)
    assert {file.relative_to(ROOT).as_posix() for file in missing} <= shell_files()


def shell_files() -> set[str]:
    """Return the files of tasks.core.config.params: parsing and defaults, whose results the version has as values."""
    shell = {name.replace(".", "/") + ".py" for name in SHELL}
    configs = [file.relative_to(ROOT) for file in (ROOT / "tasks/core/config").glob("*.py")] + [*map(Path, shell)]
    packages = {folder / "__init__.py" for config in configs for folder in config.parents}
    return shell | {file.as_posix() for file in {*configs, *packages}}


class SamplingInputs(StageInputs):
    seed: int
    temperature: float = knob("collection.temperature")


def test_version_moves_with_the_params_that_it_reads_alone(project: Path) -> None:
    stage = Stage("s", "tasks.room.stage:body", SamplingInputs)
    params = Params()
    hotter = params.collection.model_copy(update={"temperature": 2.0})
    more = params.collection.model_copy(update={"rollouts_per_task": 8})
    version = stage_version(stage, params, project)
    assert stage_version(stage, params.model_copy(update={"collection": more}), project) == version
    for other in (params.model_copy(update={"collection": hotter}), params.model_copy(update={"seed": 1})):
        found = stage_version(stage, other, project)
        assert (found.code == version.code, found.params == version.params) == (True, False)


def test_every_stage_has_a_version_under_the_default_parameters() -> None:
    params = load_params(ROOT / "params.yaml")
    versions = {stage.name: stage_version(stage, params, ROOT) for stage in STAGES}
    assert len({version.digest for version in versions.values()}) == len(STAGES)


def test_changes_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    for room in ("tasks", "flows", "data/base_policies"):
        (tmp_path / room).symlink_to(ROOT / room)
    layout, params = Layout(tmp_path), load_params(ROOT / "params.yaml")

    def printed(params: Params) -> list[str]:
        layout.params.write_text(yaml.safe_dump(params.model_dump(mode="json")))
        version_stages(StageContext(layout, params))
        return capsys.readouterr().out.splitlines()

    assert printed(params) == printed(params) == []
    faster = params.model_copy(update={"update": params.update.model_copy(update={"learning_rate": 0.5})})
    was = params.update.learning_rate
    change = f"changed: update.learning_rate: {was} -> 0.5 (update_policy, report, record_lineage)"
    assert printed(faster) == [change]
    code = read_document(layout.stage_versions, StageVersions).root["score"].code
    layout.stage_versions.write_text(layout.stage_versions.read_text().replace(code, "0" * 16))
    assert printed(faster) == ["changed: code (score)"]
    layout.manifest.unlink()
    assert printed(params) == []


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
    file = ROOT / "tasks" / "core" / "engines" / "vllm_server" / "engine.py"

    def parse(times: int) -> None:
        for _ in range(times):
            with suppress(SystemError):
                ast.parse(file.read_bytes())

    with ThreadPoolExecutor(1) as other:
        parsing = other.submit(parse, 200)
        while not parsing.done():
            _parsed(file)
