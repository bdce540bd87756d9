"""A comparison of scored models, registered versions among them, from the outcomes of each task, and its page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tasks.core.evaluation.differences import CONFIDENCE
from tasks.core.evaluation.level_scores import paired_tests
from tasks.core.evaluation.scoring_conditions import scored_differently
from tasks.core.evaluation.tgc_sgc import Outcome
from tasks.core.pages.tables import markdown_table
from tasks.core.records.comparison import ALL_LEVELS, ComparedModel, Comparison, Difference, SeedSpread, SplitScores
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing

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


DRAWN = (
    "Paired by task; interval and p are of these two policies on another draw of tasks of this kind, not of other "
    "training seeds. p is of each row alone: with many rows, some are small by chance."
)


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write the comparison into `folder`, as JSON and as a page, whole or not at all."""
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_document(temporary / "comparison.json", comparison)
        (temporary / "comparison.md").write_text(f"{comparison_page(comparison)}\n", encoding="utf-8")


def comparison_page(comparison: Comparison) -> str:
    """Return the page: the models, their scores, and the difference of each two."""
    models, parts = comparison.models, [f"# {comparison.title}"]
    if names := comparison.scored_differently:
        parts.append(f"**They were scored differently ({', '.join(names)}): these scores do not compare.**")
    facts = list(dict.fromkeys(name for model in models for name in model.facts))
    parts.append(
        markdown_table(("model", *facts), [(m.name, *(m.facts.get(name, "-") for name in facts)) for m in models])
    )
    parts.append(_figures(models, ("split", "difficulty"), "TGC / SGC", _levels))
    parts.append(_figures(models, ("split", "runs"), "pass^k / best@k", _runs))
    parts.append(_figures(models, ("split", "metric"), "", _own))
    if comparison.over_seeds:
        rows = [
            (one.split, one.metric.upper(), f"{one.mean:.1f} +-{one.deviation:.1f}") for one in comparison.over_seeds
        ]
        parts.append(markdown_table(("split", "metric", "mean and deviation over the training seeds"), rows))
    if comparison.differences:
        interval = f"{100 * comparison.confidence:g}% interval"
        head = ("second - first", "split", "difficulty", "metric", "difference", interval, "p", "pairs", "scenarios")
        parts += [DRAWN, markdown_table(head, [_difference(each) for each in comparison.differences])]
    return "\n\n".join(part for part in parts if part)


def _figures(
    models: Sequence[ComparedModel], head: tuple[str, str], unit: str, of: Callable[[SplitScores], dict[str, str]]
) -> str:
    """Return a table with a row for each split and key of `of`, a column for each model; "" where nothing has any."""
    cells = {
        (split, key): {m.name: of(m.splits[split]).get(key, "-") for m in models if split in m.splits}
        for model in models
        for split, scores in model.splits.items()
        for key in of(scores)
    }
    rows = [(*place, *(found.get(model.name, "-") for model in models)) for place, found in cells.items()]
    names = [f"{model.name}: {unit}" if unit else model.name for model in models]
    return markdown_table((*head, *names), rows) if rows else ""


def _levels(scores: SplitScores) -> dict[str, str]:
    return {
        level: f"{percent(found.tgc, found.tgc_se)} / {percent(found.sgc, found.sgc_se)}"
        for level, found in scores.levels.items()
    }


def _runs(scores: SplitScores) -> dict[str, str]:
    return {
        k: f"{percent(found.pass_hat, found.pass_hat_se)} / {percent(found.best_of, found.best_of_se)}"
        for k, found in scores.per_k.items()
        if k != "1"
    }


def _own(scores: SplitScores) -> dict[str, str]:
    return {} if scores.own is None else {scores.own.name: percent(scores.own.value, scores.own.value_se, 2)}


def _difference(each: Difference) -> tuple[str, ...]:
    interval = "-" if each.low is None or each.high is None else f"{each.low:+.1f} to {each.high:+.1f}"
    p_value = "-" if each.p_value is None else f"{each.p_value:.2g}"
    figures = (f"{each.difference:+.1f}", interval, p_value, str(each.pairs), str(each.scenarios))
    return f"{each.second} - {each.first}", each.split, each.level, each.metric.upper(), *figures


def percent(value: float, error: float | None, digits: int = 1) -> str:
    """Return a figure with its standard error."""
    return f"{value:.{digits}f}" + ("" if error is None else f" +-{error:.{digits}f}")
