"""A score as the package's own results file, read and accepted by the package's own leaderboard tools."""

import json
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.app import main
from tasks.core.records.comparison import ModelScore
from tasks.core.records.documents import read_document
from tasks.core.tool_calls import call_text
from tests.core.chat_servers.conftest import ChatServer, serve, surroundings
from tests.core.worlds.tau2.conftest import PROJECT, project
from tests.core.worlds.tau2.recited import HAND_OVER

__all__ = ["project", "serve", "surroundings"]
pytestmark = [pytest.mark.tau2, pytest.mark.timeout(1800)]


def score(agent: ChatServer, runs: int) -> int:
    settings = {
        "world.tau2.prompt": "ticket",
        "engine.chat_api.traffic.key_variable": "LOOPLINE_TEST_KEY",
        "engine.chat_api.traffic.answer_price": "10",
        "scoring.scenarios": "null",
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return main(["score", agent.url, "tiny", "--world", "tau2", "--split", "base", "--runs", str(runs), *arguments])


def test_the_leaderboards_tools_take_a_score_of_all_tasks(
    project: Path, python: Path, serve: Callable[..., ChatServer]
) -> None:
    """By an agent that hands every task over: pass^1 to pass^4 are the tool's, reckoned from the file, and ours."""
    turns = [call_text(HAND_OVER, "json"), call_text([("done", {})], "json")]
    agent = serve(lambda body: (turns[sum(one["role"] == "assistant" for one in body["messages"])], "stop"))
    assert score(agent, runs=4) == 0
    (folder,) = project.glob("data/scored/*/score.json")
    found, results = read_document(folder, ModelScore), folder.parent / "package" / "tau2_telecom.json"
    submission = project / "submission"
    said = submitted(python, results, submission)
    for sentence in ("All files passed all checks!", "prepared successfully!", "metrics validation successful!"):
        assert sentence in said, said
    document = json.loads((submission / "submission.json").read_text())
    assert document["model_name"] == "tiny" and document["contact_info"] == {"email": "nobody@example.org"}
    figures = document["results"]["telecom"]
    for k in "1234":
        assert figures[f"pass_{k}"] == pytest.approx(found.scores.per_k[k].pass_hat)
    assert 0 < figures["pass_1"] < 50 and figures["cost"] == pytest.approx(2 * 10 * 10 / 1e6)


def submitted(python: Path, results: Path, folder: Path) -> str:
    """Let the package's tools prepare and check a submission; return what they print. Only an address is told."""
    answers = ["", "", "", "nobody@example.org", "", "", "n", "", "26.3", ""]
    command = [str(python), "-m", "tests.core.worlds.tau2.leaderboard", str(results), str(folder)]
    done = subprocess.run(
        [*command, sysconfig.get_path("purelib")],
        input="\n".join(answers) + "\n",
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return done.stdout
