"""`loopline score URL MODEL` and the profile `openai`, from nothing to the report, against a real server."""

import json
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
from tasks.core.processes.addresses import free_port
from tasks.core.records.comparison import Comparison, ModelScore
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.scores import Evaluation, Scores, Selection
from tasks.core.records.tables import read_table

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).parents[4]
TASKS = 6
"""Two scenarios of three."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a base policy, whose tokenizer records the turns, and MLflow's store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "base_policies").symlink_to(ROOT / "data" / "base_policies")
    return tmp_path


@pytest.fixture
def model(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model that solves the tasks of a scenario but its last; one called "clever" solves all."""
    folder = tmp_path_factory.mktemp("world")
    prepare_world_folder(WorldSection.of("pocketworld"), folder)
    world: Any = open_world(WorldSection.of("pocketworld"), folder)
    splits = ("dev", "test_challenge", "test_normal")
    tasks = {task.instruction: task.task_id for split in splits for task in world.tasks(split)}
    turns = {task: world.demonstration(task) for task in tasks.values()}
    world.close()

    def reply(body: dict[str, Any]) -> tuple[str, str]:
        said = body["messages"]
        asked = next(task for instruction, task in tasks.items() if instruction in said[1]["content"])
        turn = sum(message["role"] == "assistant" for message in said)
        knows = body["model"] == "clever" or asked[-1] != "3"
        return turns[asked][turn] if knows and turn < len(turns[asked]) else "I do not know.", "stop"

    return serve(reply)


def score(*models: str, **knobs: str) -> int:
    settings = {
        "scoring.scenarios": "2",
        "scoring.limits.max_turns": "12",
        "engine.chat_api.traffic.key_variable": "LOOPLINE_TEST_KEY",
        "engine.chat_api.traffic.prompt_price": "2.5",
        "engine.chat_api.traffic.concurrency": "1",
        **knobs,
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return main(["score", *models, "--world", "pocketworld", "--runs", "1", *arguments])


def scored(project: Path, name: str = "*") -> ModelScore:
    (path,) = project.glob(f"data/scored/{name}/score.json")
    return read_document(path, ModelScore)


def test_a_server_is_scored_by_the_worlds_verdicts(
    project: Path, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(model.url, "tiny") == 0
    found = scored(project)
    assert found.scores.levels["all"].tgc == pytest.approx(100 * 2 / 3), "the last of each three is failed"
    assert found.scores.levels["all"].sgc == 0.0 and found.scores.levels["all"].tasks == TASKS
    table = read_table(next(project.glob("data/scored/*/rollouts.parquet")), SCORED_ROLLOUTS)
    assert found.usage is not None and found.usage.answers == sum(len(row["turns"]) for row in table.to_pylist())
    assert found.usage.cost_usd == pytest.approx(found.usage.answers * 100 * 2.5 / 1e6)
    assert found.lineage.weights is None and found.lineage.git_dirty is None
    assert "| 66.7 +-0.0" in capsys.readouterr().out
    for path in project.rglob("*"):
        assert not path.is_file() or model.key.encode() not in path.read_bytes(), f"the key is in {path}"


def test_an_inspect_log_tells_each_conversation(project: Path, model: Any) -> None:
    assert score(model.url, "tiny") == 0
    (path,) = project.glob("data/scored/*/inspect/2*.json")
    log = json.loads(path.read_text())
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert [sample["scores"]["success"]["value"] for sample in log["samples"]] == ["C", "C", "I"] * 2
    sample = log["samples"][2]
    asked = [request for request in model.requests if request["messages"][1]["content"] in sample["input"]]
    roles = ["user", *(message["role"] for message in asked[-1]["messages"][2:]), "assistant"]
    assert [message["role"] for message in sample["messages"]][: len(roles)] == roles
    heard = [message["content"] for message in asked[-1]["messages"] if message["role"] == "user"][1:]
    told = [message["content"] for message in sample["messages"] if message["role"] == "user"][1:]
    assert told[: len(heard)] == heard, "observations are those that the server was sent"


def test_after_a_failure_the_same_command_asks_for_the_rest(
    project: Path, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(model.url, "tiny", seed="1") == 0
    undisturbed = scored(project, "tiny-*").usage
    asked = len(model.requests)
    model.requests.clear()

    model.answers_left = asked // 2
    assert score(model.url, "tiny") == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("loopline score: tiny at") and "quota is used up" in error and "\n" not in error
    assert len(list(project.glob("data/scored/*/score.json"))) == 1, "nothing half-written"
    model.answers_left = None
    model.requests.clear()
    assert score(model.url, "tiny") == 0
    assert len(model.requests) == asked - asked // 2
    (first, second) = [read_document(path, ModelScore) for path in project.glob("data/scored/*/score.json")]
    assert undisturbed is not None and first.usage is not None and second.usage is not None
    assert first.usage.answers == second.usage.answers == undisturbed.answers
    assert not list(project.glob(".loopline/scoring/*/data")) and kept(project) == 0

    model.requests.clear()
    assert score(model.url, "tiny") == 0 and not model.requests, "what is scored is not asked again"


def kept(project: Path) -> int:
    with closing(sqlite3.connect(project / PAID_ANSWERS)) as file:
        return int(file.execute("SELECT count(*) FROM answers").fetchone()[0])


def test_two_models_are_compared_by_task(project: Path, model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(model.url, "tiny", model.url, "clever") == 0
    (path,) = project.glob("data/scored/comparison-*/comparison.json")
    comparison = read_document(path, Comparison)
    found = {(each.level, each.metric): each for each in comparison.differences}
    assert found["all", "tgc"].difference == pytest.approx(100 / 3) and found["all", "sgc"].difference == 100
    assert found["all", "tgc"].pairs == TASKS and comparison.scored_differently == {}
    assert "+33.3" in capsys.readouterr().out

    assert score(model.url, "tiny", "data/base_policies/pocket", **{"scoring.scenarios": "1"}) == 2
    assert "engine.chat_api" in capsys.readouterr().err, "a knob of a server's is none of a folder's"


def test_servers_that_are_none_end_in_one_line(
    project: Path, serve: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    nonsense = serve(lambda body: ("", "stop"))
    nonsense.fail(times=1000, body=b"<html>It works!</html>")
    for url, said in ((nonsense.url, "gave up after"), (f"http://127.0.0.1:{free_port()}/v1", "no server there")):
        assert score(url, "tiny") == 1
        error = capsys.readouterr().err.strip()
        assert said in error and url in error and "\n" not in error
        assert not (project / "data" / "scored").exists()


@pytest.fixture
def server(model: Any) -> Any:
    """The model, which params.yaml of the profile `openai` asks for little."""
    knobs = {
        "engine.chat_api.request.base_url": model.url,
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
    return model


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
        while kept(project) < asked // 3:
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
    assert kept(project) == 0
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
