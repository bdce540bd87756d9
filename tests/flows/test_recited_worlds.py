"""Recited worlds in miniature: one command from nothing to scores of official solutions, and BFCL's own verdicts."""

from pathlib import Path

import pytest

from tasks.core.interpreters import INTERPRETERS
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Scores
from tests.flows.tiny_project import ROOT, configure, make_project, succeed

pytestmark = pytest.mark.timeout(1200)
LITTLE = ("iterations=0", "scoring.rollouts_per_task=1")
COUNTS = "{train: 3, dev: 3, test_normal: 3, test_challenge: 3}"
UNLIMITED = "{max_turns: 200}"
SIZES = {
    "bfcl": ("evaluation.scenarios=1", "scoring.scenarios=1"),
    "tau2": ("evaluation.scenarios=3", "scoring.scenarios=8"),
    "scienceworld": (
        "world.seed=189",  # draws types whose official solutions are short
        f"world.scienceworld={{max_moves: null, max_turns: 200, counts: {COUNTS}}}",
        *(f"{played}.limits={UNLIMITED}" for played in ("collection", "evaluation", "scoring")),
    ),
}


@pytest.mark.parametrize("world", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in SIZES])
def test_one_command_scores_official_solutions(world: str, tmp_path: Path) -> None:
    project, kept = make_project(tmp_path / "project"), ROOT / INTERPRETERS
    kept.mkdir(parents=True, exist_ok=True)
    (project / INTERPRETERS).parent.mkdir(exist_ok=True)
    (project / INTERPRETERS).symlink_to(kept)  # made once for all tests
    configure(project, world, "engine.name=oracle", *LITTLE, *SIZES[world])
    succeed(project, "-m", "dvc", "repro", "--quiet")
    for split in ("test_normal", "test_challenge"):
        scored = read_document(Layout(project).score(split), Scores)
        assert (scored.base_tgc, scored.base_sgc) == (100, 100)
    if world == "bfcl":
        said = succeed(project, "-m", "flows.cli", "export", "scores", "bfcl", "test_normal", "exported")
        assert said.splitlines()[-1].endswith("none")
