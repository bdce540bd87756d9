"""Each kind of rule on histories worked out by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.collapse.rules import Rule, broken, collapse_rules, limit_of, new_warnings
from tasks.core.records.training import WatchedStats

CALM = {
    "mean_return": 0.5,
    "group_return_std": 0.4,
    "entropy": 1.0,
    "kl_per_token": 0.001,
    "grad_norm": 0.5,
    "length": 100.0,
    "repetition": 0.1,
    "distinct": 0.9,
    "information": 0.8,
    "mismatch": 0.0,
}
FALL = Rule(name="r", figure="entropy", kind="fall", factor=0.25)
RISE = Rule(name="r", figure="entropy", kind="rise", factor=2)
SPIKE = Rule(name="r", figure="grad_norm", kind="spike", factor=4)
OVER = Rule(name="r", figure="repetition", kind="over", factor=0.6)


def history(figure: str, values: list[float | None], **changed: Any) -> list[WatchedStats]:
    return [WatchedStats.model_validate({**CALM, figure: value, **changed}) for value in values]


def warned(rule: Rule, values: list[float | None], **changed: Any) -> list[int]:
    """Return the iterations with a new warning."""
    figures = history(rule.figure, values, **changed)
    every = [new_warnings(figures[:count], [rule]) for count in range(1, len(values) + 1)]
    return [warning.iteration for found in every for warning in found]


def test_a_fall_is_under_a_share_of_the_mean_of_the_first_two() -> None:
    """Start (1 + 3) / 2 = 2, limit 0.5; a value equal to the limit is no fall."""
    assert warned(FALL, [1.0, 3.0, 0.5, 0.49, 0.1, 0.6, 0.4]) == [4, 7]
    message = broken(FALL, history("entropy", [1.0, 3.0, 0.49]))
    assert message == "entropy is 0.49 (limit 0.5, under 0.25 times its start)"


def test_the_second_iteration_is_compared_with_the_first() -> None:
    assert warned(FALL, [2.0, 0.49]) == [2]
    assert warned(FALL, [0.0]) == []


def test_a_rise_is_over_a_multiple_of_the_start() -> None:
    """Start (1 + 2) / 2 = 1.5, limit 3."""
    assert warned(RISE, [1.0, 2.0, 3.0, 3.1, 3.2, 1.0, 5.0]) == [4, 7]


def test_a_spike_is_over_a_multiple_of_the_median_of_the_last_five() -> None:
    """The last five of 9 1 2 3 2 1 have the median 2: 8 is no spike, 8.1 is; the next median is 2 again."""
    assert warned(SPIKE, [9.0, 1.0, 2.0, 3.0, 2.0, 1.0, 8.0]) == []
    assert warned(SPIKE, [9.0, 1.0, 2.0, 3.0, 2.0, 1.0, 8.1]) == [7]


def test_over_is_the_value_itself_from_the_first_iteration_on() -> None:
    assert warned(OVER, [0.7, 0.6, 0.61]) == [1, 3]


def test_missing_figures_are_skipped() -> None:
    assert warned(FALL, [None, 1.0, None, 3.0, None, 0.4]) == [6]
    assert warned(SPIKE, [None, None]) == []


def test_successful_runs_may_become_uniform() -> None:
    rule = FALL.model_copy(update={"solved_at": 0.9})
    assert warned(rule, [1.0, 1.0, 0.1], mean_return=0.9) == []
    assert warned(rule, [1.0, 1.0, 0.1], mean_return=0.89) == [3]


def test_a_start_of_zero_gives_no_warning() -> None:
    assert warned(FALL, [0.0, 0.0, -1.0]) == []


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.floats(0.1, 10))
def test_relative_rules_know_no_unit(values: list[float], unit: float) -> None:
    for rule in (FALL, RISE, SPIKE):
        limits = [limit_of(rule, history(rule.figure, [scale * v for v in values])) for scale in (1.0, unit)]
        assert limits[0] is not None
        assert limits[1] == pytest.approx(unit * limits[0])


def test_a_calm_run_breaks_no_rule() -> None:
    calm = history("entropy", [1.0] * 6)
    assert [new_warnings(calm[:count], collapse_rules()) for count in range(1, 7)] == [[]] * 6
    assert {rule.figure for rule in collapse_rules()} <= set(WatchedStats.model_fields)
    assert len({rule.name for rule in collapse_rules()}) == len(collapse_rules())
