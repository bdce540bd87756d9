"""A comparison of scored models from their rollouts. Pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from tasks.core.evaluation.differences import CONFIDENCE
from tasks.core.evaluation.level_scores import paired_tests
from tasks.core.evaluation.scored_rows import Row, outcomes
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.records.model_scores import ModelComparison, ModelDifference, ModelScore

Scored = tuple[ModelScore, Sequence[Row]]


def compared(scored: Sequence[Scored], params: Mapping[str, Mapping[str, str]]) -> ModelComparison:
    """Return the models with the paired difference of each two; `params` by a model's name and a knob's dotted name."""
    first, _ = scored[0]
    return ModelComparison(
        world=first.world,
        split=first.split,
        confidence=CONFIDENCE,
        models=tuple(score for score, _ in scored),
        differences=tuple(each for one, other in combinations(scored, 2) for each in _differences(one, other)),
        scored_differently=scored_differently(params, [first.split]),
    )


def _differences(first: Scored, second: Scored) -> list[ModelDifference]:
    tests = paired_tests(outcomes(first[1]), outcomes(second[1]), CONFIDENCE)
    return [
        ModelDifference(first=first[0].name, second=second[0].name, level=level, metric=metric, **vars(test))  # type: ignore[arg-type]
        for level, metric, test in tests
    ]
