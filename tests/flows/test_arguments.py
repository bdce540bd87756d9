"""Numbers on the command line: a refused number gives one line, before anything is done."""

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from flows.arguments import LAST_PORT, whole_number

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("text", ["0", "65535", " 8000 "])
def test_whole_numbers_between_the_limits_are_taken(text: str) -> None:
    assert whole_number(0, LAST_PORT)(text) == int(text)


@pytest.mark.parametrize("text", ["-1", "65536", "99999999", "1.5", "", "x", "nan"])
def test_other_numbers_are_refused_with_the_wanted_range(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a whole number from 0 to 65535"):
        whole_number(0, LAST_PORT)(text)


def test_without_an_upper_limit() -> None:
    assert whole_number(1)("1000000") == 1_000_000
    with pytest.raises(ArgumentTypeError, match="'0' is not a whole number from 1 on"):
        whole_number(1)("0")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("flows.comparison", "methods", "--jobs", "0"), "argument --jobs: '0' is not a whole number from 1 on"),
        (
            ("flows.deployments", "up", "--port", "70000"),
            "argument --port: '70000' is not a whole number from 1",
        ),
        (("flows.plan", "--gpus", "-2"), "argument --gpus: '-2' is not a whole number from 1 on"),
        (("flows.world_server", "bandit", "--sessions", "0"), "argument --sessions: '0' is not a whole number"),
        (("flows.world_server", "bandit", "--folder", "/dev/null"), "argument --folder: /dev/null is no folder"),
    ],
)
def test_commands_refuse_bad_numbers_in_one_line(command: tuple[str, ...], message: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
