"""Rows of SCORED_ROLLOUTS read as outcomes, behaviour and figures. Pure, except for decoding tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tasks.core.config.world_settings import WorldMetric
from tasks.core.evaluation.behaviour import ActedRollout
from tasks.core.evaluation.tgc_sgc import Estimate, Key, Outcome, by_difficulty, clustered_estimate, tgc
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.records.scores import DifficultyScore, MetricScore, MetricScores

Row = dict[str, Any]
"""A row of `records.schemas.SCORED_ROLLOUTS`."""


def rationale(row: Row) -> str:
    """Return the end of a rollout's episode, and the requirements that it met and missed, one to a line."""
    tests = [f"{name}: {text}" for name in ("failed", "passed") for text in row[f"tests_{name}"]]
    return "\n".join([f"ended by {row['end_reason']}", *tests])


def outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Return the outcomes that count for TGC and SGC.

    A rollout that the world broke is a failure, for lack of a verdict.

    `playing.require_unbroken` lets only few such rollouts pass.
    """
    return [
        Outcome(row["task_id"], row["scenario_id"], row["difficulty"], row["evaluation_run"], row["success"])
        for row in rows
    ]


def outcomes_by_policy(rows: Sequence[Row]) -> dict[tuple[str, str], list[Outcome]]:
    """Return outcomes by split and policy; `rows` need only the columns of `records.schemas.OUTCOMES`."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["split"], row["policy"]), []).append(row)
    return {split_and_policy: outcomes(group) for split_and_policy, group in groups.items()}


def difficulty_scores(played: Sequence[Outcome]) -> dict[str, DifficultyScore]:
    """Return the TGC of each difficulty level."""
    return {str(level): _difficulty_score(part) for level, part in by_difficulty(played).items()}


def mean_return(rows: Sequence[Row]) -> float:
    """Return the mean return of the rollouts, a share."""
    return float(np.mean([row["return"] for row in rows]))


def void_rollouts(rows: Sequence[Row]) -> int:
    """Return the number of rollouts that the world broke."""
    return sum(row["end_reason"] in VOID_REASONS for row in rows)


def acted_rollouts(rows: Sequence[Row], chat: ChatFormat) -> Iterator[ActedRollout]:
    """Yield the rollouts as the behaviour metrics need them, without void rollouts, which the world cut short."""
    for row in rows:
        if row["end_reason"] not in VOID_REASONS:
            yield ActedRollout(row["task_id"], row["success"], row["turns"], "\n".join(turn_texts(row, chat)))


def turn_texts(row: Row, chat: ChatFormat) -> list[str]:
    """Return the policy's own turns as text, thoughts included."""
    return [chat.decode(ids) for ids in _turn_ids(row)]


def answers(row: Row, chat: ChatFormat) -> list[str]:
    """Return the texts on which the world acted: the policy's own turns without thoughts."""
    return [chat.answer(ids) for ids in _turn_ids(row)]


def _turn_ids(row: Row) -> list[list[int]]:
    ids, turn_index = np.asarray(row["token_ids"]), np.asarray(row["turn_index"])
    return [ids[turn_index == turn].tolist() for turn in range(max(row["turn_index"], default=-1) + 1)]


def _difficulty_score(played: Sequence[Outcome]) -> DifficultyScore:
    estimate = tgc(played)
    tasks = len({outcome.task_id for outcome in played})
    return DifficultyScore(tasks=tasks, tgc=estimate.value, tgc_se=estimate.standard_error)


def metric_score(metric: WorldMetric | None, rows: Sequence[Row]) -> MetricScore | None:
    """Return the mean over the rollouts, in the metric's own unit; None for a world without a metric."""
    if metric is None:
        return None
    estimate = _estimate(_values(metric, rows))
    return MetricScore(name=metric.name, value=estimate.value, value_se=estimate.standard_error)


def metric_scores(metric: WorldMetric | None, rows: Sequence[Row], base: Sequence[Row]) -> MetricScores | None:
    """Return the metric of `rows` and of `base`, which played the same tasks in the same runs, and the paired gain."""
    if metric is None:
        return None
    ours, theirs = _values(metric, rows), _values(metric, base)
    trained, untrained = _estimate(ours), _estimate(theirs)
    gain = _estimate({key: value - theirs[key] for key, value in ours.items()})
    return MetricScores(
        name=metric.name,
        value=trained.value,
        value_se=trained.standard_error,
        base=untrained.value,
        base_se=untrained.standard_error,
        gain=gain.value,
        gain_se=gain.standard_error,
    )


def _values(metric: WorldMetric, rows: Sequence[Row]) -> dict[Key, float]:
    """Return values by (scenario, task, evaluation run)."""
    values: dict[Key, float] = {}
    for row in rows:
        held = row.get(metric.of, 0.0)
        value = sum(held) if isinstance(held, list) else float(held)
        values[row["scenario_id"], row["task_id"], row["evaluation_run"]] = metric.scale * value
    return values


def _estimate(values: dict[Key, float]) -> Estimate:
    """Estimate mean and standard error in the metric's unit; `clustered_estimate` returns percent."""
    return clustered_estimate([value / 100 for value in values.values()], [str(key[0]) for key in values])
