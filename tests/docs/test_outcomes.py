"""Pages whose outcomes by task are in git: their tables are computed from these files again."""

from pathlib import Path
from statistics import fmean

import pytest

from tasks.core.evaluation.differences import BySeed, method_test
from tasks.core.pages.tables import SPLIT_NAMES, markdown_table
from tasks.core.records.comparison import NO_FINE_TUNING, Study
from tasks.core.records.documents import read_document
from tasks.core.study import rows, sections
from tasks.core.worlds.pocketworld.authoring import generate_specs
from tasks.core.worlds.pocketworld.kind import WORLD

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
OUTCOMES = RESULTS / "outcomes"
WORLD_SEED = 2502
SHOWN = {"create", "update_one", "ask_field", "delete_every", "count", "copy_one", "extreme"}
"""The templates of pocketworld that `narrow` demonstrates."""


@pytest.mark.parametrize("name", sorted(file.stem for file in OUTCOMES.glob("*.json")))
def test_a_page_has_the_tables_that_its_outcomes_give(name: str) -> None:
    study = read_document(OUTCOMES / f"{name}.json", Study)
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert [
        section.title for section in sections(study)[:-1] if markdown_table(section.heads, section.rows) not in page
    ] == []


def test_the_page_of_narrow_tells_demonstrated_templates_from_others() -> None:
    study = read_document(OUTCOMES / "narrow.json", Study)
    assert markdown_table(*by_template(study)) in (RESULTS / "narrow.md").read_text(encoding="utf-8")


def by_template(study: Study) -> tuple[list[str], list[list[str]]]:
    """The gain of `loop` in TGC on demonstrated templates (or their kind in held-out apps) and on others."""
    shown = {
        (str(split), spec.task_id): spec.template.removeprefix("held_out_") in SHOWN
        for split, specs in generate_specs(WORLD_SEED, WORLD.settings()).items()
        for spec in specs
    }
    table = []
    for split, title in SPLIT_NAMES.items():
        for wanted, kind in ((True, "demonstrated templates"), (False, "other templates")):
            base, loop = (
                {
                    seed: {task: mean for task, mean in means.items() if shown[split, task[1]] == wanted}
                    for seed, means in rows(study)[method][split, "tgc"].items()
                }
                for method in (NO_FINE_TUNING, "loop")
            )
            test = method_test(base, loop, study.confidence)
            assert test is not None
            interval = "" if test.low is None else f" ({test.low:+.1f} to {test.high:+.1f})"
            cells = [str(len(loop[0])), _mean(base), _mean(loop), f"{test.difference:+.1f}{interval}"]
            table.append([f"{title}, {kind}", *cells])
    return ["TGC, percent", "tasks", "base", "LOOP", "gain"], table


def _mean(by_seed: BySeed) -> str:
    return f"{100 * fmean(mean for means in by_seed.values() for mean in means.values()):.1f}"
