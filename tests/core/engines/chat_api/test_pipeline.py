"""The profile `openai` from nothing to the report, every stage by the registry, against a real server."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from flows.cli.app import main
from flows.dag.stages import STAGES
from flows.runners.plain_runner import PlainRunner
from tasks.core.chat_servers.paid_answers import PAID_ANSWERS
from tasks.core.config.params import ParamsError, load_params
from tasks.core.config.world import WorldSection
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import Evaluation, Scores, Selection
from tasks.core.records.tables import read_table

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[4]
"""They need the project's git and DVC; flows and lineage test them."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    copytree(ROOT / "data" / "base_policies", tmp_path / "data" / "base_policies")
    return tmp_path


@pytest.fixture
def server(project: Path, serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model that solves the tasks of a scenario but its last; params.yaml asks it for little."""
    folder = tmp_path_factory.mktemp("world")
    prepare_world_folder(WorldSection.of("pocketworld"), folder)
    world: Any = open_world(WorldSection.of("pocketworld"), folder)
    tasks = [task for split in ("dev", "test_normal", "test_challenge") for task in world.tasks(split)]
    solutions = {task.instruction: world.demonstration(task.task_id) for task in tasks if task.task_id[-1] != "3"}
    world.close()

    def reply(body: dict[str, Any]) -> tuple[str, str]:
        said = body["messages"]
        known = [turns for instruction, turns in solutions.items() if instruction in said[1]["content"]]
        turn = sum(message["role"] == "assistant" for message in said)
        return known[0][turn] if known and turn < len(known[0]) else "I do not know.", "stop"

    server = serve(reply)
    knobs = {
        "engine.chat_api.request.base_url": server.url,
        "engine.chat_api.traffic.key_variable": "LOOPLINE_TEST_KEY",
        "engine.chat_api.traffic.prompt_price": "2.5",
        "engine.chat_api.traffic.answer_price": "10",
        "scoring.scenarios": "2",
        "scoring.rollouts_per_task": "1",
        "scoring.limits.max_turns": "2",
        "evaluation.limits.max_turns": "8",
        "evaluation.scenarios": "1",
    }
    assert main(["configure", "openai", *(part for name in knobs for part in ("--set", f"{name}={knobs[name]}"))]) == 0
    return server


def run_stages(project: Path, *names: str) -> None:
    """Run these stages for all their keys, in the order of the pipeline."""
    params, cache = load_params(project / "params.yaml"), ProcessCache()
    try:
        for stage in STAGES:
            for key in stage.keys(params) if stage.name in ("version_stages", *names) else ():
                PlainRunner(project, cache).run(stage.name, key)
    finally:
        cache.close()


def test_the_profile_scores_a_model_and_trains_nothing(project: Path, server: Any) -> None:
    run_stages(project, *(stage.name for stage in STAGES if stage.name != "record_lineage"))
    layout = Layout(project)

    assert read_document(layout.selection, Selection).iteration == "i000"
    dev = read_document(layout.evaluation("i000"), Evaluation)
    scores = read_document(layout.score("test_normal"), Scores)
    assert dev.usage is not None and scores.usage is not None
    assert (scores.tgc, scores.base_tgc, scores.tgc_gain) == (scores.base_tgc, scores.tgc, 0.0)
    table = read_table(layout.score_rollouts("test_normal"), SCORED_ROLLOUTS)
    base = [row for row in table.to_pylist() if row["policy"] == "base"]
    assert len(base) == 6 and table.num_rows == 12
    assert scores.usage.answers == sum(len(row["turns"]) for row in base), "the base was paid for once"
    assert scores.usage.cost_usd == pytest.approx(scores.usage.answers * (100 * 2.5 + 10 * 10) / 1e6)
    page = (layout.report / "index.html").read_text()
    assert "gpt-4o-2024-11-20-dated" in page and f"{scores.usage.prompt_tokens:,}" in page
    _nowhere(server.key, project)


def kept_answers(project: Path) -> int:
    """The number of answers that are kept for another attempt."""
    with closing(sqlite3.connect(project / PAID_ANSWERS)) as file:
        return int(file.execute("SELECT count(*) FROM answers").fetchone()[0])


def test_after_a_kill_only_what_is_missing_is_asked_for(project: Path, server: Any) -> None:
    run_stages(project, "prepare_world", "prepare_policy", "filter_tasks", "evaluate_policy", "select_checkpoint")
    copytree(project, undisturbed := project / "undisturbed", ignore=ignore_patterns("undisturbed"))
    os.chdir(undisturbed)
    server.requests.clear()
    run_stages(undisturbed, "score")
    asked = len(server.requests)

    os.chdir(project)
    server.requests.clear()
    server.fall_silent(after=asked // 3)
    command = [sys.executable, "-m", "flows.stage", "score", "test_normal"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as scoring:
        while kept_answers(project) < asked // 3:
            assert scoring.poll() is None
            time.sleep(0.01)
        scoring.kill()
    server.requests.clear()
    server.answers_left = None
    run_stages(project, "score")
    assert len(server.requests) == asked - asked // 3
    for name in ("test_normal.json", "test_normal_rollouts.parquet"):
        paths = [folder / "data" / "scores" / name for folder in (project, undisturbed)]
        assert paths[0].read_bytes() == paths[1].read_bytes(), name
    assert kept_answers(project) == 0
    _nowhere(server.key, project)


def _nowhere(secret: str, folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            assert secret.encode() not in (Path(place) / name).read_bytes(), f"the key is in {place}/{name}"


def test_such_an_engine_cannot_train(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configure", "openai", "--set", "iterations=2"]) == 2
    assert "can be scored but not trained; set iterations: 0" in capsys.readouterr().err
    main(["configure", "openai"])
    path = project / "params.yaml"
    trained = load_params(path).model_dump(mode="json") | {"iterations": 1}
    path.write_text(str(trained))
    with pytest.raises(ParamsError):
        load_params(path)
