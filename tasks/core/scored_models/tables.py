"""Scored models as Markdown, for a terminal and for a file. Pure."""

from collections.abc import Iterator, Sequence

from tasks.core.pages.tables import markdown_table
from tasks.core.records.comparison import ALL_LEVELS
from tasks.core.records.model_scores import ModelComparison, ModelDifference, ModelScore
from tasks.core.records.scores import ApiUsage

DRAWN = (
    "Paired by task; interval and p are of these two models on another draw of tasks of this kind. p is of each row "
    "alone: with many rows, some are small by chance."
)

_PAID = {"usage": "paid", "world_usage": "paid by the world"}


def score_page(scores: Sequence[ModelScore]) -> str:
    """Return the table of models, a row each, and their figures over several runs."""
    first = scores[0]
    level = first.scores.levels[ALL_LEVELS]
    title = f"{first.world}, {first.split}: {level.tasks} tasks of {level.scenarios} scenarios, percent"
    return "\n\n".join([title, *(table for table in (_scores(scores), _runs(scores), _levels(scores)) if table)])


def comparison_page(comparison: ModelComparison) -> str:
    """Return the table of models and that of their differences."""
    parts = [score_page(comparison.models)]
    if names := comparison.scored_differently:
        parts.append(f"**Scored differently ({', '.join(names)}): these scores do not compare.**")
    head = ("second - first", "difficulty", "metric", "difference", f"{100 * comparison.confidence:g}% interval", "p")
    rows = [_difference(each) for each in comparison.differences]
    return "\n\n".join([*parts, DRAWN, markdown_table((*head, "pairs"), rows)])


def _scores(scores: Sequence[ModelScore]) -> str:
    own = next((score.scores.own.name for score in scores if score.scores.own is not None), None)
    paid = [name for name in _PAID if any(getattr(score, name) is not None for score in scores)]
    names = [_PAID[name] for name in paid]
    head = ("model", "runs", "TGC", "SGC", *([own] if own else []), "mean return", "void", *names)
    return markdown_table(head, [_row(score, own, paid) for score in scores])


def _row(score: ModelScore, own: str | None, paid: Sequence[str]) -> tuple[str, ...]:
    of_all, metric = score.scores.levels[ALL_LEVELS], score.scores.own
    shown = (_percent(metric.value, metric.value_se) if metric else "-",) if own else ()
    return (
        score.name,
        str(score.scores.rollouts_per_task),
        _percent(of_all.tgc, of_all.tgc_se),
        _percent(of_all.sgc, of_all.sgc_se),
        *shown,
        f"{score.mean_return:.3f}",
        str(score.void_rollouts),
        *(_paid(getattr(score, name)) for name in paid),
    )


def _paid(usage: ApiUsage | None) -> str:
    return "-" if usage is None else f"{usage.answers:,} answers, {usage.cost_usd:,.2f} USD"


def _runs(scores: Sequence[ModelScore]) -> str:
    """Return pass^k by k, and best@k, where a model has several runs."""
    most = max(score.scores.rollouts_per_task for score in scores)
    if most < 2:
        return ""
    head = ("model", *(f"pass^{k}" for k in range(1, most + 1)), f"best@{most}")
    return markdown_table(head, [(score.name, *_of_runs(score, most)) for score in scores])


def _of_runs(score: ModelScore, most: int) -> Iterator[str]:
    for k in range(1, most + 1):
        found = score.scores.per_k.get(str(k))
        yield "-" if found is None else _percent(found.pass_hat, found.pass_hat_se)
    last = score.scores.per_k.get(str(most))
    yield "-" if last is None else _percent(last.best_of, last.best_of_se)


def _levels(scores: Sequence[ModelScore]) -> str:
    names = sorted({name for score in scores for name in score.scores.levels} - {ALL_LEVELS})
    if len(names) < 2:
        return ""
    rows = [
        (
            score.name,
            *(_percent(found.tgc, found.tgc_se) if (found := score.scores.levels.get(n)) else "-" for n in names),
        )
        for score in scores
    ]
    return markdown_table(("TGC by difficulty", *names), rows)


def _difference(each: ModelDifference) -> tuple[str, ...]:
    interval = "-" if each.low is None or each.high is None else f"{each.low:+.1f} to {each.high:+.1f}"
    p_value = "-" if each.p_value is None else f"{each.p_value:.2g}"
    names = f"{each.second} - {each.first}"
    return names, each.level, each.metric.upper(), f"{each.difference:+.1f}", interval, p_value, str(each.pairs)


def _percent(value: float, error: float | None) -> str:
    return f"{value:.1f}" + ("" if error is None else f" +-{error:.1f}")
