"""A comparison of scored models, registered versions among them, from the outcomes of each task. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, stdev
from typing import Any

from tasks.core.evaluation.differences import CONFIDENCE
from tasks.core.evaluation.level_scores import paired_tests
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.records.comparison import ALL_LEVELS, ComparedModel, Comparison, Difference, SeedSpread, SplitScores

SEED = "seed"
_WITHOUT_EFFECT = ("profiles", "lineage.", "machines.")
"""Name prefixes of parameters that do not affect the policy."""


@dataclass(frozen=True)
class PlayedModel:
    """A model that was scored."""

    name: str
    facts: Mapping[str, str]
    """Facts that a table shows beside its scores: its iteration, its commit, its cost."""
    scores: Mapping[str, SplitScores]
    outcomes: Mapping[str, Sequence[Outcome]]
    """Both by split."""
    params: Mapping[str, str]
    """By dotted name, as text: the code of another version may have had other parameters."""


def compared(title: str, played: Sequence[PlayedModel]) -> Comparison:
    """Return the models with the paired difference of each two, and their spread where their seed alone differs."""
    splits = list(dict.fromkeys(split for model in played for split in model.scores))
    return Comparison(
        title=title,
        confidence=CONFIDENCE,
        models=tuple(ComparedModel(name=one.name, facts=dict(one.facts), splits=dict(one.scores)) for one in played),
        differences=tuple(
            found for one, other in combinations(played, 2) for split in splits for found in _tests(one, other, split)
        ),
        over_seeds=tuple(_over_seeds(played, splits)) if _differ_in_seed(played) else (),
        scored_differently=scored_differently({model.name: model.params for model in played}, splits),
    )


def _tests(first: PlayedModel, second: PlayedModel, split: str) -> Iterator[Difference]:
    """Yield second minus first at every level that both have played."""
    ours, theirs = (model.outcomes.get(split, ()) for model in (first, second))
    for level, metric, test in paired_tests(ours, theirs, CONFIDENCE) if ours and theirs else ():
        named: dict[str, Any] = {"first": first.name, "second": second.name, "split": split, "metric": metric}
        yield Difference(**named, level=level, **vars(test))


def _differ_in_seed(played: Sequence[PlayedModel]) -> bool:
    """Return whether the models are of runs with the same parameters but for the seed, which is each one's own."""
    rest = [{k: v for k, v in m.params.items() if k != SEED and not k.startswith(_WITHOUT_EFFECT)} for m in played]
    seeds = {model.params.get(SEED) for model in played}
    return len(played) > 1 and len(seeds) == len(played) and all(one == rest[0] for one in rest)


def _over_seeds(played: Sequence[PlayedModel], splits: Sequence[str]) -> Iterator[SeedSpread]:
    for split in splits:
        found = [model.scores[split].levels[ALL_LEVELS] for model in played if split in model.scores]
        for metric in ("tgc", "sgc") if len(found) == len(played) else ():
            values = [getattr(score, metric) for score in found]
            yield SeedSpread(split=split, metric=metric, mean=mean(values), deviation=stdev(values))
