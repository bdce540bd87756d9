"""Pages that are made from the code are up to date: what each of them says is what the code says."""

import pytest
from annotated_types import Ge
from pydantic import Field

from docs.hooks import commands, knobs, presets
from flows.configure import params_of
from tasks.core.config.params import Params
from tasks.core.config.section import Section


def test_the_page_of_knobs_is_up_to_date() -> None:
    page = knobs.PAGE.read_text(encoding="utf-8")
    assert page == knobs.with_tables(page), "run python docs/hooks/knobs.py"


def test_the_page_of_commands_is_up_to_date() -> None:
    page = commands.PAGE.read_text(encoding="utf-8")
    assert page == commands.with_commands(page), "run python docs/hooks/commands.py"


@pytest.mark.parametrize("name", presets.PAGES)
def test_the_pages_of_presets_are_up_to_date(name: str) -> None:
    page = (presets.DOCS / name).read_text(encoding="utf-8")
    assert page == presets.with_tables(name, page), "run python docs/hooks/presets.py"


def test_every_knob_of_params_yaml_has_a_row_with_its_value() -> None:
    rows = {knob.name: knob.default for table in knobs.tables() for knob in table.knobs}
    params = params_of("default")
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
