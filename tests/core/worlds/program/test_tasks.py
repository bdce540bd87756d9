"""The user's own lines, as tasks of our splits."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.splits import SPLITS
from tasks.core.processes.running import find_process
from tasks.core.records.files import ArtifactError, digest
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.program.episode import remove_left_files
from tasks.core.worlds.program.kind import ProgramConfig
from tasks.core.worlds.program.world import ProgramTask, write_program


def written(folder: Path, lines: list[dict[str, Any]], seed: int = 1) -> dict[Any, list[ProgramTask]]:
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_program(ProgramConfig(command=("python", "agent.py"), folder=str(folder)), seed, folder / "world")
    return read_tasks(folder / "world", ProgramTask)


def test_scenarios_without_a_split_are_dealt_whole(tmp_path: Path) -> None:
    lines = [{"id": number, "scenario": f"s{number // 2}", "wish": number} for number in range(20)]
    tasks = written(tmp_path, lines)
    assert [len(tasks[split]) for split in SPLITS] == [12, 2, 4, 2]
    scenarios = {split: {task.scenario_id for task in tasks[split]} for split in SPLITS}
    assert sum(map(len, scenarios.values())) == 10, "no scenario is in two splits"
    task = next(task for part in tasks.values() for task in part if task.task_id == "7")
    assert task.given == {"id": "7", "scenario": "s3", "wish": 7, "split": task.split}
    assert (task.difficulty, task.instruction) == (1, "7")
    assert written(tmp_path, lines) == tasks != written(tmp_path, lines, seed=2)


def test_a_folder_has_a_file_for_each_split(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    for split in SPLITS:
        line = {"id": f"{split}-1", "difficulty": 2, "instruction": "Win.", "solution": ["a", "b"]}
        (place / f"{split}.jsonl").write_text(json.dumps(line) + "\n")
    config = ProgramConfig(command=("./agent",), folder=str(tmp_path), tasks="mine")
    write_program(config, 1, tmp_path / "world")
    (task,) = read_tasks(tmp_path / "world", ProgramTask)["test_normal"]
    assert (task.task_id, task.difficulty, task.instruction) == ("test_normal-1", 2, "Win.")
    assert task.solution == ("a", "b") and "solution" not in task.given, "the program is not handed it"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"scenario": "s"}], r"tasks.jsonl: line 1: id: Field required"),
        ([{"id": "a"}, {"id": "b", "difficulty": 4}], r"tasks.jsonl: line 2: difficulty"),
        ([{"id": "a", "split": "test"}], r"tasks.jsonl: line 1: split"),
        ([{"id": "a"}, {"id": "a"}], r"2 tasks have the id a"),
        ([{"id": "a", "scenario": "s", "split": "dev"}, {"id": "b", "scenario": "s"}], r"s is in more than one split"),
        ([{"id": "a"}], r"\w+ has no task"),
    ],
)
def test_a_line_that_breaks_a_rule_is_named(lines: list[dict[str, Any]], said: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=said):
        written(tmp_path, lines)


def test_a_change_of_the_program_is_a_change_of_the_world(tmp_path: Path) -> None:
    program, found = tmp_path / "mine", []
    program.mkdir()
    (program / "tasks.jsonl").write_text("".join(f'{{"id": "{split}", "split": "{split}"}}\n' for split in SPLITS))
    config = ProgramConfig(command=("python", "agent.py"), folder=str(program))
    for text in ("print(1)", "print(1)", "print(2)"):
        (program / "agent.py").write_text(text)
        write_program(config, 1, tmp_path / "world")
        found.append(digest(tmp_path / "world"))
    assert found[0] == found[1] != found[2], "stages that play read the world's folder"


OWNER = """
import time
from pathlib import Path
from tasks.core.worlds.program.episode import ProgramProcess
process = ProgramProcess(["sleep", "60"], Path("/"), "{}", {}, lambda: None)
print(process._process.pid, process._files.name, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent's death signal is Linux's")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_a_killed_pipeline_and_its_files_go_at_the_next_start(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, files = owner.stdout.readline().split()
        program = find_process(int(pid))
        assert program.is_running
        owner.send_signal(number)
    end = time.monotonic() + 10
    while program.is_running and time.monotonic() < end:
        time.sleep(0.01)
    assert not program.is_running and Path(files).is_dir()
    remove_left_files()
    assert not Path(files).exists()
