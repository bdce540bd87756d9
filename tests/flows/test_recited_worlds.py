"""A recited world in miniature: one command from nothing to scores of official solutions."""

from pathlib import Path

import pytest

from tasks.core.interpreters import INTERPRETERS
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores
from tests.flows.tiny_project import ROOT, configure, make_project, succeed

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.tau2
def test_one_command_scores_official_solutions(tmp_path: Path) -> None:
    project, kept = make_project(tmp_path / "project"), ROOT / INTERPRETERS
    kept.mkdir(parents=True, exist_ok=True)
    (project / INTERPRETERS).parent.mkdir(exist_ok=True)
    (project / INTERPRETERS).symlink_to(kept)  # made once for all tests
    little = ("iterations=0", "scoring.rollouts_per_task=1", "evaluation.scenarios=3", "scoring.scenarios=8")
    configure(project, "tau2", "engine.name=oracle", *little)
    succeed(project, "-m", "dvc", "repro", "--quiet")
    for split in ("test_normal", "test_challenge"):
        scored = read_document(Layout(project).score(split), Scores)
        assert (scored.base_tgc, scored.base_sgc) == (100, 100)
