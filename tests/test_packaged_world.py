"""A world that is somebody else's package: built, installed into a fresh environment with the project, and played."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

from tasks.core.interpreters import uv_index_variables
from tasks.core.records.files import read_json
from tests.flows.tiny_project import NOWHERE, ROOT, make_project

pytestmark = pytest.mark.packaged

SOURCE = Path(__file__).parent / "key_value_world"
PACKAGE = "loopline-key-value==0.1.0"
TINY = ("iterations=1", "world.name=key_value", "engine.name=scripted", "policy.chat.date=null")


@dataclass(frozen=True)
class Installed:
    """A fresh environment with the project's command and the world, and the other packages of this one behind it."""

    home: Path
    project: Path

    @property
    def site(self) -> Path:
        (found,) = self.home.glob("lib/python*/site-packages")
        return found

    def run(self, *arguments: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command of the environment in the project."""
        folder = cwd or self.project
        variables = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        variables |= NOWHERE | {
            "PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}{os.pathsep}{sysconfig.get_path('purelib')}",
            "PYTHONDONTWRITEBYTECODE": "",
        }
        command = [str(self.home / "bin" / "python"), *map(str, arguments)]
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=550)

    def loopline(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        return self.run("-m", "flows.cli", *arguments)

    def repro(self) -> str:
        done = self.run("-m", "dvc", "repro")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout


def pip(*arguments: object) -> None:
    command = [uv.find_uv_bin(), *map(str, arguments)]
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(command, env={**variables, **uv_index_variables()}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("packaged")
    source = shutil.copytree(SOURCE, folder / "source")
    pip("build", "--quiet", "--wheel", "--out-dir", folder / "dist", source)
    pip("venv", "--quiet", "--python", sys.executable, folder / "fresh")
    (wheel,) = (folder / "dist").glob("*.whl")
    pip("pip", "install", "--quiet", "--no-deps", "--python", folder / "fresh", wheel)
    project = make_project(folder / "project")
    yield Installed(folder / "fresh", project)


@pytest.fixture(scope="module")
def played(installed: Installed) -> Installed:
    """The pipeline, once through."""
    done = installed.loopline("configure", "drill", *(f"--set={setting}" for setting in TINY))
    assert done.returncode == 0, done.stderr
    installed.repro()
    return installed


def test_its_knobs_are_in_params_yaml_with_what_they_mean(played: Installed) -> None:
    text = (played.project / "params.yaml").read_text()
    assert "  key_value:" in text and "entries: 4 " in text and "# Entries of a store" in text


def test_a_wrong_knob_is_named(installed: Installed) -> None:
    for setting, message in (
        ("world.key_value.entries=2", "world.key_value.entries: Input should be greater than or equal to 3"),
        ("world.key_value.entires=[]", "world.key_value.entires: no such knob; did you mean world.key_value.entries?"),
        ("world.name=key_valeu", "no world is called 'key_valeu'"),
    ):
        done = installed.loopline("configure", "drill", *(f"--set={each}" for each in (*TINY, setting)))
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_it_is_played_and_a_second_run_has_nothing_to_do(played: Installed) -> None:
    scores = read_json(played.project / "data" / "scores" / "test_normal.json")
    assert scores["tasks"] > 0 and scores["tgc"] > 0
    assert "Data and pipelines are up to date." in played.repro()


def test_its_code_is_in_the_versions_of_the_stages_that_play_it(played: Installed) -> None:
    stages = read_json(played.project / "data" / "manifest.json")["stages"]
    own = {f"{PACKAGE}/loopline_key_value/{name}.py" for name in ("__init__", "kind", "settings", "world")}
    for stage in ("prepare_world", "collect_rollouts", "score"):
        assert own == {name for name in stages[stage] if name.startswith(PACKAGE)}
        assert "tasks/core/text_games/task_files.py" in stages[stage]  # what it imports of the project
        assert not [name for name in stages[stage] if name.startswith("tasks/core/worlds/") and "__" not in name]
    assert not own & {*stages["update_policy"]}


def test_lineage_names_the_distribution(played: Installed) -> None:
    done = played.loopline("lineage", "test_normal.tgc")
    assert f"packages: {PACKAGE}" in done.stdout, done.stdout + done.stderr


def test_its_page_is_made_from_its_settings(played: Installed) -> None:
    done = played.run("docs/hooks/knobs.py", "key_value", cwd=ROOT)
    assert "| `world.key_value.entries` | `4` | *whole number ≥ 3, ≤ 8.* Entries of a store. |" in done.stdout


def test_its_author_runs_the_contract(installed: Installed) -> None:
    done = installed.loopline("contract", "key_value")
    assert done.returncode == 0, done.stdout + done.stderr
    *rules, earned = done.stdout.splitlines()
    assert {line.split()[0] for line in rules} == {"ok"} and earned == "note    doing nothing earns 0.00 of 1"
    unknown = installed.loopline("contract", "key_valeu")
    assert unknown.returncode == 2 and "no world is called 'key_valeu'" in unknown.stderr


def test_another_version_of_the_package_makes_its_stages_stale(played: Installed) -> None:
    """Also an editable install, which is digested by its files."""
    source = played.home.parent / "source"
    world = source / "loopline_key_value" / "world.py"
    world.write_text(world.read_text().replace("Good bye.", "Farewell."))
    pip("pip", "install", "--quiet", "--no-deps", "--python", played.home, "--editable", source)
    assert played.loopline("configure", "--refresh").returncode == 0
    told = played.loopline("status").stdout
    assert "collect_rollouts" in told and f"{PACKAGE}/loopline_key_value/world.py" in told
    assert "prepare_world" in played.repro()
    before = read_json(played.project / "data" / "stage_versions.json")["collect_rollouts"]["code"]
    world.write_text(world.read_text().replace("Farewell.", "So long."))
    played.repro()
    assert read_json(played.project / "data" / "stage_versions.json")["collect_rollouts"]["code"] != before
