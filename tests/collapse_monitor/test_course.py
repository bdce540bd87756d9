"""What the next iteration goes by."""

import pytest

from tasks.collapse_monitor.course import next_course
from tasks.collapse_monitor.rules import Rule
from tasks.core.config.monitor import MonitorAction
from tasks.core.records.monitoring import CollapseWarning, Course, Monitor
from tests.collapse_monitor.test_rules import history

WARNINGS = tuple(CollapseWarning(rule=name, iteration=i, evidence="low") for name, i in (("a", 2), ("b", 2), ("a", 5)))
RULES = (
    Rule(name="spike", figure="grad_norm", kind="spike", factor=4),
    Rule(name="rise", figure="grad_norm", kind="rise", factor=3),
    Rule(name="large", figure="kl_per_token", kind="over", factor=0.2),
    Rule(name="fall", figure="entropy", kind="fall", factor=0.5),
)


def course(action: MonitorAction, warnings: tuple[CollapseWarning, ...] = WARNINGS) -> Course:
    monitor = Monitor(history=tuple(history("grad_norm", [1.0, 3.0, 2.0])), warnings=warnings)
    return next_course(monitor, RULES, action, 0.1, 0.25)


def test_by_default_nothing_is_done() -> None:
    assert course("none") == Course()


@pytest.mark.parametrize("action", ["stop", "lower_learning_rate", "tighten_filter"])
def test_nothing_is_done_before_a_warning(action: MonitorAction) -> None:
    assert course(action, ()) == Course()


def test_a_run_stops_for_its_first_warning() -> None:
    assert course("stop") == Course(stop="iteration 2: a: low")


def test_the_learning_rate_falls_once_for_every_iteration_with_warnings() -> None:
    assert course("lower_learning_rate").learning_rate_factor == pytest.approx(0.01)


def test_the_filter_is_tightened_once() -> None:
    assert course("tighten_filter") == Course(variance_share=0.25)


def test_updates_are_held_against_the_tightest_limit_of_each_of_their_figures() -> None:
    """Of 1, 3, 2: 4 times the median 2 is 8, 3 times the start (1 + 3) / 2 is 6. The entropy is not an update's own."""
    assert course("discard_update", ()).discard_above == {"grad_norm": 6.0, "kl_per_token": 0.2}
