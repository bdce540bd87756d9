"""Pages that are made from the code are up to date: what each of them says is what the code says."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from annotated_types import Ge
from pydantic import Field

from docs.hooks import commands, knobs, metrics, presets, stage_knobs
from flows.params_file import params_of
from tasks.core.config.engine import ENGINES
from tasks.core.config.params import Params
from tasks.core.config.section import Section
from tasks.core.config.world import WORLDS
from tasks.core.lineage.params_and_metrics import iteration_numbers, score_numbers, selection_numbers
from tasks.core.records.documents import write_document
from tasks.core.records.layout import Layout
from tests import finished_run


@pytest.mark.parametrize(
    ("page", "made", "hook"),
    [
        (knobs.PAGE, knobs.with_tables, "knobs"),
        *((page, knobs.with_kind_tables, "knobs") for page in knobs.KIND_PAGES),
        (commands.PAGE, commands.with_commands, "commands"),
        (metrics.PAGE, metrics.with_tables, "metrics"),
        (presets.PAGE, presets.with_tables, "presets"),
        (stage_knobs.DVC_YAML, stage_knobs.with_comments, "stage_knobs"),
    ],
)
def test_a_page_is_up_to_date(page: Path, made: Callable[[str], str], hook: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == made(text), f"run python docs/hooks/{hook}.py"


def test_each_world_and_engine_has_its_knobs_on_one_page_and_none_on_the_cores() -> None:
    pages = [page.read_text(encoding="utf-8") for page in knobs.KIND_PAGES]
    marked = [name for page in pages if (mark := knobs.KIND_MARK.search(page)) for name in mark[1].split(", ")]
    engines = [name for name in ENGINES.own_names() if ENGINES.find(name).settings]
    assert sorted(marked) == sorted([*WORLDS.own_names(), *engines])
    core = {knob.name for table in knobs.tables() for knob in table.knobs}
    assert {name for name in core if name.startswith("world.")} == {"world.name", "world.seed", "world.code_blocks"}
    assert {name for name in core if name.startswith("engine.")} == {"engine.name"}


def test_every_number_of_mlflow_has_a_row(tmp_path: Path) -> None:
    """Of documents as a run writes them: what MLflow is given stands on the page, with `*` for a name that varies."""
    layout = Layout(tmp_path)
    finished_run.write_weights(layout.policy("i001"), "i001")
    write_document(layout.metrics("i001"), finished_run.metrics())
    write_document(layout.evaluation("i001"), finished_run.evaluation("i001", 50.0))
    write_document(layout.selection, finished_run.selection(["i001"], 50.0, 25.0))
    write_document(layout.score("test_normal"), finished_run.scores("test_normal"))
    numbers = {
        **iteration_numbers(layout, "i001", []),
        **selection_numbers(layout),
        **score_numbers(layout, "test_normal"),
    }
    page = metrics.PAGE.read_text(encoding="utf-8")
    patterns = [re.escape(name).replace(r"\*", "[^/]+") for name in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)]
    assert [name for name in numbers if not any(re.fullmatch(pattern, name) for pattern in patterns)] == [
        "update/warnings"
    ]


def test_knobs_that_a_stage_reads_are_named_by_their_section_where_it_reads_all_of_it() -> None:
    known = {"a.x", "a.y", "b", "c.d.e", "c.d.f", "c.g"}
    assert [*stage_knobs.short(known, known)] == ["a", "b", "c"]
    assert [*stage_knobs.short(known, known - {"a.y", "c.g"})] == ["a.x", "b", "c.d"]


def test_every_knob_of_params_yaml_has_a_row_with_its_value() -> None:
    params = params_of("default")
    tables = [*knobs.tables(), *knobs.kind_tables(params.world.name)]
    rows = {knob.name: knob.default for table in tables for knob in table.knobs}
    for name, value in params.knobs(unversioned=True).items():
        if name.partition(".")[0] not in knobs.NO_KNOBS:
            assert rows[name] == f"`{knobs.shown(value)}`", name
    assert Params.model_fields.keys() >= knobs.NO_KNOBS


class _Inner(Section):
    """A section."""


class _Outer(Section):
    count: int | None = Field(None, ge=1, lt=9)
    many: tuple[float, ...] = ()
    inner: _Inner | None = None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("count", "whole number ≥ 1, < 9 or `null`"),
        ("many", "list of number"),
        ("inner", "a mapping, see below or `null`"),
    ],
)
def test_values_are_said_in_words(name: str, values: str) -> None:
    assert knobs.values(_Outer.model_fields[name]) == values


def test_limits_inside_an_annotation_are_said() -> None:
    assert knobs.limits([Field(gt=0, multiple_of=3), Ge(2)]) == "> 0, a multiple of 3, ≥ 2"
