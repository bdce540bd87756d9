"""A world's own metric (`WorldMetric`) of played rollouts, with standard errors clustered by scenario. Pure."""

from collections.abc import Sequence

from tasks.core.config.world_metric import WorldMetric
from tasks.core.evaluation.scored_rows import Row
from tasks.core.evaluation.tgc_sgc import Estimate, Key, clustered_estimate
from tasks.core.records.documents import MetricScore, MetricScores


def metric_score(metric: WorldMetric | None, rows: Sequence[Row]) -> MetricScore | None:
    """Mean over the rollouts, in the metric's own unit; None for a world that has none."""
    if metric is None:
        return None
    found = _estimate(_values(metric, rows))
    return MetricScore(name=metric.name, value=found.value, value_se=found.standard_error)


def metric_scores(metric: WorldMetric | None, rows: Sequence[Row], base: Sequence[Row]) -> MetricScores | None:
    """The metric of `rows` beside `base`, which played the same tasks in the same runs, and the paired gain."""
    if metric is None:
        return None
    ours, theirs = _values(metric, rows), _values(metric, base)
    own, other = _estimate(ours), _estimate(theirs)
    gain = _estimate({key: value - theirs[key] for key, value in ours.items()})
    return MetricScores(
        name=metric.name,
        value=own.value,
        value_se=own.standard_error,
        base=other.value,
        base_se=other.standard_error,
        gain=gain.value,
        gain_se=gain.standard_error,
    )


def _values(metric: WorldMetric, rows: Sequence[Row]) -> dict[Key, float]:
    """Values by (scenario, task, evaluation run)."""
    values: dict[Key, float] = {}
    for row in rows:
        held = row.get(metric.of, 0.0)
        value = sum(held) if isinstance(held, list) else float(held)
        values[row["scenario_id"], row["task_id"], row["evaluation_run"]] = metric.scale * value
    return values


def _estimate(values: dict[Key, float]) -> Estimate:
    """`clustered_estimate` speaks in percent."""
    return clustered_estimate([value / 100 for value in values.values()], [str(key[0]) for key in values])
