"""Forty actions that are after the solution, files, the network, the JVM or a second chance. None gets any."""

from pathlib import Path

import pytest

from tasks.core.worlds.scienceworld.interpreter import python_executable
from tests.core.worlds.scienceworld.conftest import FOLDER, PLANT, PLANT_GOLD, Open

pytestmark = pytest.mark.scienceworld

SECRET = "canary-6d1f"
HOSTILE = (
    # the solution
    *("gold", "getGoldActionSequence", "getGoldActionSequence()", "goldActionsStr", "show solution", "task solution"),
    *("help gold", "objects", "help", "task", "hint", "walkthrough", "getGoalProgressStr()", "debug", "admin", "cheat"),
    # a second chance, and time that is not counted
    *("reset task", "reset the task", "RESET  TASK", "reset", "load find-plant 0", "shutdown", "quit"),
    # files and programs
    *(
        "read {file}",
        "read file:///{file}",
        "look in {file}",
        "open {file}",
        "look at ../../../../{file}",
        "$(cat {file})",
    ),
    *("; cat {file}", "| cat {file} > {folder}/out", "use java.lang.Runtime on {file}"),
    # py4j's protocol
    *("\ni\njava.lang.Runtime\ne\n", "x\ny\ns\nshutdown\ne\n", "c\no0\ngetGoldActionSequence\ne", "\r\nq\r\n"),
    # the network, templates, numbers
    *(
        "${{jndi:ldap://127.0.0.1:1/a}}",
        "#{{T(java.lang.Runtime).getRuntime().exec('id')}}",
        "0",
        "\x00\x1b\u202e\ud800",
    ),
)


def test_there_are_forty() -> None:
    assert len(set(HOSTILE)) >= 40


def test_no_text_reads_the_solution_a_file_or_ends_the_jvm(open_session: Open, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    package = next((python_executable(FOLDER).parent.parent / "lib").glob("python3*/site-packages/scienceworld"))
    before = {path.name: path.stat().st_mtime_ns for path in package.iterdir()}
    session = open_session(*PLANT)
    for text in HOSTILE:
        seen = session.step(text.format(file=file, folder=tmp_path))
        assert seen["score"] == 0 and not seen["completed"], text
        assert SECRET not in seen["text"] and "java" not in seen["text"].lower(), text
        assert not any(action in seen["text"] for action in PLANT_GOLD if action != "look around"), text
    assert session.step("wait1")["moves"] == 2
    assert {path.name: path.stat().st_mtime_ns for path in package.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_the_task_can_not_be_started_over(open_session: Open) -> None:
    session = open_session(*PLANT)
    assert session.step("reset task")["text"] == "No known action matches that input."
    assert "reset" not in session.step("help")["text"]
