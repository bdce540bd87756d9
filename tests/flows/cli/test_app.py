"""The command line as a whole: help, wrong arguments, old names, and what a wheel installs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from flows.cli.app import app, main
from flows.cli.command import fitted
from flows.cli.plan import Hardware
from tasks.core.capacity.hardware import HARDWARE
from tasks.core.config.params import load_params

ROOT = Path(__file__).resolve().parents[3]


def _commands(group: Any, name: str = "loopline") -> dict[str, Any]:
    found = {}
    for word, command in group.commands.items():
        found |= _commands(command, f"{name} {word}") if hasattr(command, "commands") else {f"{name} {word}": command}
    return found


COMMANDS = _commands(typer.main.get_command(app))


def test_every_command_or_group_is_a_file_of_its_name() -> None:
    files = {path.stem for path in (ROOT / "flows/cli").glob("*.py")}
    assert files - {"app", "command", "__main__", "__init__"} == {name.split()[1] for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split()[1:], "--help"]) == 0
    assert re.search(rf"^ +{name}\b", capsys.readouterr().out, re.MULTILINE)


def test_every_option_and_argument_says_what_it_is() -> None:
    undescribed = {
        f"{name} {parameter.name}"
        for name, command in COMMANDS.items()
        for parameter in command.params
        if not getattr(parameter, "help", None)
    }
    assert undescribed == set()


def test_help_is_quick_and_loads_nothing_of_the_work() -> None:
    code = """
import sys, time
from flows.cli.app import main
main(["--help"])
print(time.process_time(), *sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, *loaded = done.stderr.split()
    assert float(seconds) < 1
    assert {"torch", "prefect", "dvc", "mlflow", "pydantic", "numpy"}.isdisjoint(loaded)
    assert "loopline [OPTIONS] COMMAND" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "methods", "--jobs", "0"], "loopline compare: Invalid value for '--jobs'"),
        (["deploy", "--port", "70000"], "loopline deploy: Invalid value for '--port'"),
        (["plan", "--gpus", "-2"], "loopline plan: Invalid value for '--gpus'"),
        (["serve", "bandit", "--sessions", "0"], "loopline serve: Invalid value for '--sessions'"),
        (["serve", "bandit", "--folder", "/dev/null"], "loopline serve: Invalid value for --folder: /dev/null is no"),
        (["nonesuch"], "loopline: No such command 'nonesuch'"),
        (["run", "--nonesuch"], "loopline run: No such option: --nonesuch"),
        (["configure"], "loopline configure: Invalid value: give a profile's name, or --refresh"),
        (["configure", "default", "--set", "x"], "loopline configure: --set x: expected NAME=VALUE"),
        (["compare", "nope"], "nope.yaml: no such study"),
        (["compare", "methods", "--methods", "nope", "--report"], "loopline compare: --methods: nope: not in the"),
        (["compare", "methods", "--seeds", "a"], "loopline compare: Invalid value for --seeds: a: no whole number"),
        (
            ["serve", "bandit", "--host", "nowhere.invalid"],
            "loopline serve: Invalid value for --host: nowhere.invalid: ",
        ),
        (["lineage", "nonsense"], "loopline lineage: nonsense names nothing here; expected "),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    "subject", ["data/nonsense", "i099", "i001", "selected", "test_normal.tgc", "i001.kl", "i001:t:0"]
)
def test_before_any_run_lineage_knows_no_artifact(
    subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["configure", "drill"]) == 0
    assert main(["lineage", subject]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"loopline lineage: {subject}: no stage has run here, and it does not exist"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert capsys.readouterr().out == f"loopline {declared}\n"


def test_without_a_command_there_is_help_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "configure" in printed.out and printed.err == ""


def test_all_hardware_can_be_planned_for() -> None:
    assert set(get_args(Hardware)) == set(HARDWARE)


def test_the_script_needs_a_checkout_and_says_so(tmp_path: Path) -> None:
    """Isolated from this environment's packages, as where nothing but a wheel is installed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "loopline.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f"loopline: {tmp_path} is in no checkout of loopline; clone the repository, run it there\n"


def test_a_command_in_a_subfolder_works_in_its_checkout_and_takes_paths_from_where_it_stands(tmp_path: Path) -> None:
    for room in ("flows", "tasks"):
        (tmp_path / room).symlink_to(ROOT / room)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/base_policies").symlink_to(ROOT / "data/base_policies")
    folder = tmp_path / "docs" / "more"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("methods: {a: nonesuch}\n")

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ROOT / "loopline.py", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True)

    assert called("configure", "drill").returncode == 0
    assert load_params(tmp_path / "params.yaml").profiles == ("drill",)
    assert "no profile 'nonesuch'" in called("compare", "mine.yaml", "--report").stderr
    assert [file.name for file in folder.iterdir()] == ["mine.yaml"]


def test_a_long_line_hangs_below_its_own_indent_and_no_word_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    digest = "d" * 64
    found = list(fitted(["short", f"  wrote {'data/policy ' * 5}{digest}", ""]))
    assert found[0] == "short" and found[-1] == ""
    assert found[1].startswith("  wrote data/policy") and len(found[1]) <= 60
    assert found[-2] == f"      {digest}", "longer than the terminal, and whole"
    assert " ".join(" ".join(found).split()) == f"short wrote {'data/policy ' * 5}{digest}"


def test_what_is_read_by_other_programs_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, fitted(["word " * 100]))) == 79
