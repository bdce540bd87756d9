"""Result files as the package writes them, and text that ends the package's own process."""

import json
from pathlib import Path

import pytest

from tasks.core.interfaces.world_kind import ScoredEpisode
from tasks.core.records.files import ArtifactError
from tasks.core.worlds.bfcl.export import Examined, examine, write_results
from tasks.core.worlds.bfcl.kind import WORLD
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.settings import BfclConfig
from tasks.core.worlds.bfcl.world import BfclWorld
from tests.scored_trials import trials_of


def test_results_lie_where_the_package_looks(tmp_path: Path) -> None:
    examined = {
        "multi_turn_base_3": Examined(True, "", [["[ls()]", "Done."]], []),
        "multi_turn_base_4": Examined(False, "the episode was cut", None, []),
        "multi_turn_miss_func_3": Examined(False, "", [["No."]], []),
    }
    write_results(tmp_path / "out", "mine", examined)
    folder = tmp_path / "out" / "result" / "mine" / "multi_turn"
    assert sorted(path.name for path in folder.iterdir()) == [
        "BFCL_v4_multi_turn_base_result.json",
        "BFCL_v4_multi_turn_miss_func_result.json",
    ]
    lines = (folder / "BFCL_v4_multi_turn_base_result.json").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": "multi_turn_base_3", "result": [["[ls()]", "Done."]]},
        {"id": "multi_turn_base_4", "result": []},
    ]
    with pytest.raises(ArtifactError, match="exists already"):
        write_results(tmp_path / "out", "mine", examined)


@pytest.mark.bfcl
def test_text_that_ends_the_packages_process_is_one_failure(pool: BfclPool, world: BfclWorld) -> None:
    ids = ["multi_turn_base_0", "multi_turn_base_1", "multi_turn_base_2"]
    turns = {task_id: world.demonstration(task_id) for task_id in ids}
    turns[ids[1]] = ["[echo(content='' + str(__import__('os')._exit(3)))]", *turns[ids[1]]]
    turns[ids[2]] = turns[ids[2]][:-1]
    examined = examine(pool, turns)
    assert [one.valid for one in examined.values()] == [True, False, False]
    assert "is gone" in examined[ids[1]].error and "cut" in examined[ids[2]].error


@pytest.mark.bfcl
def test_a_score_of_two_runs_is_in_the_packages_files(world: BfclWorld, tmp_path: Path) -> None:
    """The interpreter is asked for as the command does, from the project's folder."""
    ids = ["multi_turn_base_0", "multi_turn_miss_func_1"]
    solved = {task_id: tuple(world.demonstration(task_id)) for task_id in ids}
    runs = {
        (task_id, trial): turns if trial == 0 else turns[:-1] for task_id, turns in solved.items() for trial in (0, 1)
    }
    episodes = [ScoredEpisode(task, turns, trial == 0, [], [], trial) for (task, trial), turns in runs.items()]
    folder = tmp_path / "package"
    WORLD.write_results(trials_of(BfclConfig(), tmp_path, "test_normal", episodes, folder))
    for trial, finished in ((0, True), (1, False)):
        results = folder / "result" / f"loopline_run{trial}" / "multi_turn"
        lines = [json.loads(line) for path in sorted(results.iterdir()) for line in path.read_text().splitlines()]
        assert [line["id"] for line in lines] == ids
        assert [bool(line["result"]) for line in lines] == [finished, finished]
