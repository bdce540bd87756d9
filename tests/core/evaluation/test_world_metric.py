"""A world's own metric by hand, and its way into documents and names."""

from typing import Any

import pytest

from tasks.core.config.world import WorldSection
from tasks.core.config.world_settings import WorldMetric
from tasks.core.evaluation.scored_rows import metric_score, metric_scores
from tasks.core.pages.tables import score_table
from tests.finished_run import scores


def rows(*returns: float) -> list[dict[str, Any]]:
    """Return rows of one task each, in scenarios of their own."""
    return [
        {
            "scenario_id": f"s{number}",
            "task_id": f"t{number}",
            "evaluation_run": 0,
            "return": value,
            "success": value == 1.0,
            "turn_rewards": [value, -0.25],
        }
        for number, value in enumerate(returns)
    ]


@pytest.mark.parametrize(
    ("metric", "value", "error"),
    [
        (WorldMetric("score", "return", 100), 75.0, 25.0),
        (WorldMetric("accuracy", "success", 100), 50.0, 50.0),
        (WorldMetric("reward", "turn_rewards"), 0.5, 0.25),
    ],
)
def test_the_mean_in_the_worlds_own_unit(metric: WorldMetric, value: float, error: float) -> None:
    found = metric_score(metric, rows(1.0, 0.5))
    assert found is not None
    assert (found.name, found.value, found.value_se) == (metric.name, pytest.approx(value), pytest.approx(error))


def test_a_gain_is_paired_and_numbers_are_called_by_the_metrics_name() -> None:
    found = metric_scores(WorldMetric("score", "return", 100), rows(1.0, 0.5), rows(0.5, 0.0))
    assert found is not None
    assert found.named() == pytest.approx(
        {
            "score": 75.0,
            "score_se": 25.0,
            "base_score": 25.0,
            "base_score_se": 25.0,
            "score_gain": 50.0,
            "score_gain_se": 0.0,
        }
    )
    assert "Test-N score, mean of the episodes" in score_table([scores("test_normal", own=found)])


def test_rollouts_without_rewards_earned_nothing_and_a_world_of_unit_tests_has_no_metric() -> None:
    (row,) = rows(1.0)
    del row["turn_rewards"]
    found = metric_score(WorldMetric("reward", "turn_rewards"), [row])
    assert found is not None and (found.value, found.value_se) == (0.0, None)
    assert metric_score(None, [row]) is None and metric_scores(None, [row], [row]) is None


def test_each_world_declares_its_own() -> None:
    named = {name: WorldSection.of(name).settings.own_metric for name in ("tau2", "program", "webshop", "pocketworld")}
    assert {name: metric and metric.name for name, metric in named.items()} == {
        "tau2": "pass_1",
        "program": "reward",
        "webshop": "reward",
        "pocketworld": None,
    }
