"""The course of the next iteration."""

import pytest

from tasks.core.collapse.rules import Rule
from tasks.core.config.monitor import MonitorAction
from tasks.core.records.monitoring import Course
from tasks.monitor_collapse import next_course
from tests.core.collapse.test_rules import history

CALM = [1.0, 1.0, 1.0]
TWICE = [1.0, 3.0, 10.0, 1.0, 10.0]
"""Breaks both rules on its third value (the start is 2, the median 2), and again on its fifth (2, and 2)."""
RULES = (
    Rule(name="spike", figure="grad_norm", kind="spike", factor=4),
    Rule(name="rise", figure="grad_norm", kind="rise", factor=3),
    Rule(name="large", figure="kl_per_token", kind="over", factor=0.2),
    Rule(name="fall", figure="entropy", kind="fall", factor=0.5),
)


def course(action: MonitorAction, norms: list[float]) -> Course:
    return next_course(history("grad_norm", [*norms]), RULES, action)


def test_by_default_the_course_is_neutral() -> None:
    assert course("none", TWICE) == Course()


@pytest.mark.parametrize("action", ["stop", "lower_learning_rate", "tighten_filter"])
def test_the_course_is_neutral_before_a_warning(action: MonitorAction) -> None:
    assert course(action, CALM) == Course()


def test_a_run_stops_for_its_first_warning() -> None:
    evidence = "grad_norm is 10 (limit 8, over 4 times its recent median)"
    assert course("stop", TWICE) == Course(stop=f"iteration 3: spike: {evidence}")


def test_the_learning_rate_falls_once_for_every_iteration_with_warnings() -> None:
    assert course("lower_learning_rate", TWICE).learning_rate_factor == pytest.approx(0.3**2)


def test_the_filter_is_tightened_once() -> None:
    assert course("tighten_filter", TWICE) == Course(variance_share=0.5)


def test_updates_are_compared_with_the_tightest_limit_of_each_figure() -> None:
    """Limits by 1, 3, 2: 4 times the median, 8; 3 times the start's mean, 6.

    The entropy is not an update's own figure.
    """
    assert course("discard_update", [1.0, 3.0, 2.0]).discard_above == {"grad_norm": 6.0, "kl_per_token": 0.2}
