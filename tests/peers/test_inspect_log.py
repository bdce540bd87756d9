"""A score's log as Inspect's own reader and viewer take it (lane peers)."""

import sys
from pathlib import Path

import pytest

from flows.cli.app import main
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.records.comparison import ModelScore
from tasks.core.records.documents import read_document
from tasks.core.records.schemas import SCORED_ROLLOUTS
from tasks.core.records.tables import read_table
from tests.peers.interpreter import HERE, ROOT, asked

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1500)]

MODEL = ROOT / "data" / "base_policies" / "pocket"
INSPECT = InterpreterRecipe(
    name="inspect",
    requirements=HERE / "inspect_requirements.txt",
    python=f"{sys.version_info.major}.{sys.version_info.minor}",
    dependencies=False,
    check="import inspect_ai.log",
)


def test_inspect_reads_the_log_of_a_score_and_bundles_it_for_its_viewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    knobs = ["--set", "iterations=0", "--set", "evaluation.scenarios=1"]
    assert main(["configure", "default", *knobs]) == 0
    assert main(["score", str(MODEL), "--split", "dev", "--runs", "2"]) == 0
    (folder,) = (tmp_path / "data" / "scored").glob("pocket-*")
    score = read_document(folder / "score.json", ModelScore)
    rows = read_table(folder / "rollouts.parquet", SCORED_ROLLOUTS).to_pylist()
    found = asked(INSPECT, "read_inspect_log.py", str(folder / "inspect"), str(tmp_path / "bundle"))
    assert (found["status"], found["task"], found["epochs"]) == ("success", "loopline/pocketworld", 2)
    assert found["dataset"] == ["pocketworld dev", len({row["task_id"] for row in rows})]
    assert found["metrics"]["accuracy"] == pytest.approx(score.scores.levels["all"].tgc / 100)
    verdicts = {(task, epoch): value for task, epoch, value, _ in found["samples"]}
    assert verdicts == {(r["task_id"], r["evaluation_run"] + 1): "C" if r["success"] else "I" for r in rows}
    turns = {(task, epoch): roles.count("assistant") for task, epoch, _, roles in found["samples"]}
    assert turns == {(r["task_id"], r["evaluation_run"] + 1): max(r["turn_index"]) + 1 for r in rows}
    first = min(rows, key=lambda row: (row["task_id"], row["evaluation_run"]))
    ids = [id for id, turn in zip(first["token_ids"], first["turn_index"], strict=True) if turn == 0]
    assert found["first"]["said"][:2] == [found["first"]["input"], load_chat_format(MODEL).decode(ids)]
    assert {"index.html", "logs"} <= set(found["viewer"])
