"""Experiment outputs: recorded turns replayed, and the package's own evaluation of them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world_kind import ScoredEpisode
from tasks.core.records.files import ArtifactError, read_json
from tasks.core.worlds.appworld.export import experiment_name, export_outputs, package_scores
from tasks.core.worlds.appworld.kind import WORLD, AppWorldConfig
from tasks.core.worlds.appworld.layout import engine_variables
from tasks.core.worlds.appworld.world import demonstration
from tests.scored_trials import trials_of

FAIL = '```python\napis.supervisor.complete_task(status="fail")\n```'


@pytest.mark.appworld
def test_the_package_judges_exported_episodes_as_played(
    appworld_python: Path, appworld_root: Path, tmp_path: Path
) -> None:
    """One scenario solved; of another, one task solved, one left half way, one whose code ends the server."""
    ids = (appworld_root / "data" / "datasets" / "test_normal.txt").read_text().split()[:6]
    turns = {task_id: demonstration(appworld_root, 8, task_id) for task_id in ids}
    turns[ids[4]] = ["no code", *turns[ids[4]][:1], FAIL]
    turns[ids[5]] = ["```python\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n```", "```python\nx\n```"]
    folder = tmp_path / "export"
    export_outputs(appworld_python, appworld_root, "test_normal", turns, folder)
    scores = package_scores(appworld_python, folder, "test_normal")
    assert {task_id: scores.successes[task_id] for task_id in ids[:4]} == dict.fromkeys(ids[:4], True)
    solved = sum(scores.successes.values())
    assert set(scores.successes) == set(ids) and solved in (4, 5, 6)
    assert scores.tgc == round(100 * solved / 6, 1)
    for task_id in ids:
        task = folder / "experiments" / "outputs" / experiment_name("test_normal") / "tasks" / task_id
        assert (task / "dbs" / "model_hashes.json").is_file() and (task / "logs" / "api_calls.jsonl").is_file()
        assert (task / "evaluation" / "report.md").is_file()
    with pytest.raises(ArtifactError, match="exists already"):
        export_outputs(appworld_python, appworld_root, "test_normal", turns, folder)


@pytest.mark.appworld
def test_the_leaderboards_tools_run_on_an_export_of_both_splits(
    appworld_python: Path, appworld_root: Path, tmp_path: Path
) -> None:
    folder, splits = tmp_path / "export", ("test_normal", "test_challenge")
    for split in splits:
        ids = split_ids(appworld_root, split)[:3]
        export_outputs(appworld_python, appworld_root, split, {task_id: [FAIL] for task_id in ids}, folder)
        packed(appworld_python, folder, experiment_name(split), split)
    assert "test_challenge" in tool(appworld_python, folder, "make", *map(experiment_name, splits))


@pytest.mark.appworld
def test_a_score_of_two_runs_is_in_the_packages_outputs_and_nothing_else(
    appworld_python: Path, appworld_root: Path, tmp_path: Path
) -> None:
    """The first run solves both tasks, the second one of them. The outputs hold no data; they pack in a root."""
    config, ids = AppWorldConfig(source="official", root=appworld_root), split_ids(appworld_root, "test_normal")[:2]
    WORLD.write(config, 0, tmp_path / "world")
    episodes = [
        ScoredEpisode(
            task,
            (FAIL,) if (trial, task) == (1, ids[0]) else tuple(demonstration(appworld_root, 8, task)),
            True,
            [],
            [],
            trial,
        )
        for trial in (0, 1)
        for task in ids
    ]
    folder = tmp_path / "package"
    WORLD.write_results(trials_of(config, tmp_path / "world", "test_normal", episodes, folder))
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink()] == []
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 2 * 2 * 2**18
    outputs = folder / "experiments" / "outputs"
    tgc = {}
    for made in sorted(outputs.iterdir()):
        assert sorted(path.name for path in (made / "tasks").iterdir()) == sorted(ids)
        tgc[made.name] = read_json(made / "evaluations" / "test_normal.json")["aggregate"]["task_goal_completion"]
    assert tgc["loopline_run0_test_normal"] == 100 and set(tgc) == {f"loopline_run{n}_test_normal" for n in (0, 1)}
    root = tmp_path / "root"
    root.mkdir()
    (root / "data").symlink_to(appworld_root / "data")
    shutil.copytree(folder, root, dirs_exist_ok=True)
    packed(appworld_python, root, "loopline_run0_test_normal", "test_normal")
    assert (root / "experiments" / "outputs" / "loopline_run0_test_normal" / "leaderboard.bundle").is_file()


def split_ids(root: Path, split: str) -> list[str]:
    return (root / "data" / "datasets" / f"{split}.txt").read_text().split()


def packed(python: Path, folder: Path, name: str, split: str) -> str:
    return tool(python, folder, "pack", name, split, "LOOP", "method", "model", "model", "https://example.org")


def tool(python: Path, folder: Path, *arguments: str) -> str:
    """Run a command of the package on an AppWorld root; return what it prints."""
    command = [str(python), "-m", "appworld.cli", *arguments, "--root", str(folder)]
    variables = engine_variables(python, folder)
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_folder_that_is_no_export_of_the_root_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(ArtifactError, match="mine: exists already, and is no export of this run's tasks"):
        export_outputs(Path("python"), tmp_path / "root", "test_normal", {"a_1": []}, tmp_path / "mine")
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.appworld
@pytest.mark.parametrize(("code_blocks", "solved"), [("first", False), ("all", True)])
def test_the_text_that_was_run_is_replayed(
    appworld_python: Path, appworld_root: Path, tmp_path: Path, code_blocks: CodeBlocks, solved: bool
) -> None:
    """A whole solution in one turn of several blocks."""
    (task_id, *_) = (appworld_root / "data" / "datasets" / "test_normal.txt").read_text().split()
    turns = {task_id: ["\n".join(demonstration(appworld_root, 8, task_id))]}
    export_outputs(appworld_python, appworld_root, "test_normal", turns, tmp_path / "out", code_blocks)
    assert package_scores(appworld_python, tmp_path / "out", "test_normal").successes == {task_id: solved}
