"""The Python of the pages runs."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tasks.core.worlds.pocketworld import episode
from tasks.core.worlds.pocketworld.authoring import generate_specs
from tasks.core.worlds.pocketworld.demonstrations import TrustedRepl
from tasks.core.worlds.pocketworld.kind import PocketworldConfig
from tasks.core.worlds.pocketworld.problem import build_problem

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "results" not in page.parts)
SNIPPETS = {
    f"{page.name} {number}": code
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
}


def test_each_page_with_python_is_tried_here() -> None:
    assert sorted(SNIPPETS) == ["api.md 0", "extending.md 0", "program.md 0", "tracking.md 0"]


def test_the_names_of_the_reference_can_be_imported() -> None:
    exec(SNIPPETS["api.md 0"], {})


def test_an_exported_folder_loads_as_its_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "data/base_policies/pocket", tmp_path / "trained")
    monkeypatch.chdir(tmp_path)
    loaded: dict[str, Any] = {}
    exec(SNIPPETS["tracking.md 0"], loaded)
    assert len(loaded["tokenizer"]) == loaded["model"].config.vocab_size


def test_the_shaped_reward_counts_a_shorter_answer_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    methods: dict[str, Any] = {}
    exec(SNIPPETS["extending.md 0"], {**vars(episode), "dataclasses": dataclasses}, methods)
    monkeypatch.setattr(episode.PocketEpisode, "evaluate", methods["evaluate"])
    spec = next(spec for spec in generate_specs(2502, PocketworldConfig())["train"] if build_problem(spec).answer)
    problem = build_problem(spec)
    scores = []
    for answer in (str(problem.answer), "x" * 300):
        played = episode.PocketEpisode(problem, TrustedRepl())
        played.step(f"```python\napis.supervisor.complete_task(answer={answer!r})\n```")
        scores.append(played.evaluate())
    assert all(found.score is not None and 0 <= found.score <= 1 for found in scores)
    short, long = ((found.score or 0.0) - 0.9 * found.pass_share for found in scores)
    assert short > long == 0
