"""A comparison of model versions from their scores. Pure: knows nothing of MLflow."""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from tasks.core.config.splits import MEASURED_SPLITS
from tasks.core.evaluation.level_scores import paired_tests, split_scores
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.lineage.git_state import DIRTY
from tasks.core.records.comparison import ComparedVersion, Comparison, Difference
from tasks.core.records.schemas import SELECTED_POLICY
from tasks.core.registry.model_registry import Version
from tasks.core.registry.version_evaluation import VersionEvaluation

Scored = Sequence[tuple[Version, VersionEvaluation]]


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


def differences(
    first: tuple[Version, VersionEvaluation], second: tuple[Version, VersionEvaluation], confidence: float
) -> list[Difference]:
    """Return second minus first for every split and difficulty that both have played."""
    compared = []
    for split in MEASURED_SPLITS:
        ours, theirs = (evaluation.outcomes.get((split, SELECTED_POLICY), []) for _, evaluation in (first, second))
        for level, metric, test in paired_tests(ours, theirs, confidence) if ours and theirs else ():
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
        git_dirty=DIRTY.get(tags["git_dirty"]),
        splits={
            split: split_scores(
                evaluation.outcomes[split, SELECTED_POLICY], evaluation.behaviour.get(split), evaluation.own.get(split)
            )
            for split in MEASURED_SPLITS
            if (split, SELECTED_POLICY) in evaluation.outcomes
        },
    )
