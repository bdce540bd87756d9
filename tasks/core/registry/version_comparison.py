"""A comparison of model versions from their scores. Pure: knows nothing of MLflow."""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

from tasks.core.config.splits import MEASURED_SPLITS
from tasks.core.evaluation.differences import METRICS, paired_test
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.several_runs import runs_scores
from tasks.core.evaluation.tgc_sgc import Outcome, by_difficulty, sgc, tgc
from tasks.core.records.comparison import (
    ALL_LEVELS,
    ComparedVersion,
    Comparison,
    Difference,
    LevelScore,
    SplitScores,
)
from tasks.core.records.schemas import SELECTED_POLICY
from tasks.core.records.scores import MetricScore
from tasks.core.registry.model_registry import Version
from tasks.core.registry.version_evaluation import VersionEvaluation

Scored = Sequence[tuple[Version, VersionEvaluation]]
Levels = dict[str, list[Outcome]]


def compare(registered_model: str, scored: Scored, confidence: float, rescored: bool) -> Comparison:
    """Return all versions' scores, all pairs' differences (later minus earlier), and the parameters that differ."""
    knobs = {str(version.number): evaluation.params for version, evaluation in scored}
    return Comparison(
        registered_model=registered_model,
        rescored=rescored,
        confidence=confidence,
        versions=tuple(_compared(version, evaluation) for version, evaluation in scored),
        differences=tuple(
            difference
            for first, second in combinations(scored, 2)
            for difference in differences(first, second, confidence)
        ),
        scored_differently={} if rescored else scored_differently(knobs, MEASURED_SPLITS),
        params=params_diff(knobs),
    )


def levels(outcomes: Sequence[Outcome]) -> Levels:
    """Return all outcomes, and the outcomes by difficulty."""
    return {ALL_LEVELS: list(outcomes), **{str(level): part for level, part in by_difficulty(outcomes).items()}}


def differences(
    first: tuple[Version, VersionEvaluation], second: tuple[Version, VersionEvaluation], confidence: float
) -> list[Difference]:
    """Return second minus first for every split and difficulty that both have played."""
    compared = []
    for split in MEASURED_SPLITS:
        ours, theirs = (
            levels(evaluation.outcomes.get((split, SELECTED_POLICY), [])) for _, evaluation in (first, second)
        )
        for level, metric in product((level for level in ours if level in theirs), METRICS):
            test = paired_test(METRICS[metric](ours[level]), METRICS[metric](theirs[level]), confidence)
            if test is not None:
                labels: dict[str, Any] = {"split": split, "level": level, "metric": metric}
                compared.append(Difference(first=first[0].number, second=second[0].number, **labels, **vars(test)))
    return compared


def params_diff(params: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the parameters that differ between versions; null where a version lacks a parameter."""
    names = sorted({name for values in params.values() for name in values})
    values_of = {name: {version: values.get(name) for version, values in params.items()} for name in names}
    return {name: values for name, values in values_of.items() if len({json.dumps(v) for v in values.values()}) > 1}


def _compared(version: Version, evaluation: VersionEvaluation) -> ComparedVersion:
    tags = version.tags
    return ComparedVersion(
        version=version.number,
        aliases=version.aliases,
        iteration=tags["iteration"],
        adapter_digest=tags["adapter_digest"],
        pipeline_digest=tags["pipeline_digest"],
        params_digest=tags["params_digest"],
        git_commit=tags["git_commit"],
        git_dirty=tags["git_dirty"] == "true",
        splits={
            split: _split_scores(
                evaluation.outcomes[split, SELECTED_POLICY], evaluation.behaviour.get(split), evaluation.own.get(split)
            )
            for split in MEASURED_SPLITS
            if (split, SELECTED_POLICY) in evaluation.outcomes
        },
    )


def _split_scores(outcomes: Sequence[Outcome], behaviour: Any, own: Any) -> SplitScores:
    return SplitScores(
        rollouts_per_task=len({outcome.evaluation_run for outcome in outcomes}),
        levels={level: _level_score(part) for level, part in levels(outcomes).items()},
        per_k=runs_scores(outcomes),
        behaviour=behaviour,
        own=None if own is None else MetricScore(name=own.name, value=own.value, value_se=own.value_se),
    )


def _level_score(outcomes: Sequence[Outcome]) -> LevelScore:
    tasks, scenarios = tgc(outcomes), sgc(outcomes)
    return LevelScore(
        tasks=len({outcome.task_id for outcome in outcomes}),
        scenarios=len({outcome.scenario_id for outcome in outcomes}),
        tgc=tasks.value,
        tgc_se=tasks.standard_error,
        sgc=scenarios.value,
        sgc_se=scenarios.standard_error,
    )
