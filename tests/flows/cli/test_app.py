"""The command line as a whole: help, wrong arguments, old names, and what a wheel installs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from flows.cli.app import app, main
from flows.cli.checking import Hardware
from tasks.core.capacity.hardware import HARDWARE

ROOT = Path(__file__).resolve().parents[3]


def _commands(group: Any, name: str = "loopline") -> dict[str, Any]:
    found = {}
    for word, command in group.commands.items():
        found |= _commands(command, f"{name} {word}") if hasattr(command, "commands") else {f"{name} {word}": command}
    return found


COMMANDS = _commands(typer.main.get_command(app))


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
        (["plan", "--wanted-share", "1.5"], "loopline plan: Invalid value for --wanted-share: 1.5"),
        (["serve", "bandit", "--sessions", "0"], "loopline serve: Invalid value for '--sessions'"),
        (["serve", "bandit", "--folder", "/dev/null"], "loopline serve: Invalid value for --folder: /dev/null is no"),
        (["nonesuch"], "loopline: No such command 'nonesuch'"),
        (["run", "--nonesuch"], "loopline run: No such option: --nonesuch"),
        (["configure"], "loopline configure: Invalid value: give a profile's name, or --refresh"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_a_command_there_is_help_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "configure" in printed.out and printed.err == ""


def test_all_hardware_can_be_planned_for() -> None:
    assert set(get_args(Hardware)) == set(HARDWARE)


OLD_NAMES = {
    "flows/pipeline.py": "run",
    "flows/configure.py": "configure",
    "flows/comparison/__main__.py": "compare",
    "flows/status.py": "status",
    "flows/plan.py": "plan",
    "flows/lineage.py": "lineage",
    "flows/registry.py": "registry",
    "flows/deployments.py": "deploy",
    "flows/world_server/__main__.py": "serve",
    "flows/workers/worker_node.py": "join",
    "flows/appworld_export.py": "export appworld",
    "flows/bfcl_export.py": "export bfcl",
}


def test_every_old_name_leads_to_a_command() -> None:
    found = {file: re.findall(r'moved\("([a-z ]+)"', (ROOT / file).read_text(encoding="utf-8")) for file in OLD_NAMES}
    assert found == {file: [command] for file, command in OLD_NAMES.items()}
    assert all(any(name.startswith(f"loopline {command}") for name in COMMANDS) for command in OLD_NAMES.values())


@pytest.mark.parametrize(
    ("old", "command", "message"),
    [
        ("flows.comparison methods --methods loop,nonesuch --report", "compare", "nonesuch: not in the study methods"),
        ("flows.plan --profile nonesuch --gpus 0", "plan", "Invalid value for '--gpus'"),
    ],
)
def test_an_old_name_runs_the_command_and_names_it(old: str, command: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-m", *old.split()], cwd=ROOT, capture_output=True, text=True)
    moved, error = done.stderr.splitlines()
    assert moved.startswith(f"this is now `loopline {command}`")
    assert done.returncode and error.startswith(f"loopline {command}: ") and message in error


def test_the_script_needs_a_checkout_and_says_so(tmp_path: Path) -> None:
    """Isolated from this environment's packages, as where nothing but a wheel is installed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "loopline.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f"loopline: {tmp_path} is no checkout of loopline; clone the repository and run it there\n"
