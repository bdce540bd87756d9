"""The tables of the report as HTML: scores, behaviour, warnings. Every text is escaped."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from tasks.core.records.monitoring import CollapseWarning
from tasks.core.records.scores import Behaviour, Evaluation, PairedScores, Scores, TrainingBudget

SPLIT_NAMES = {"test_normal": "Test-N", "test_challenge": "Test-C"}
BEHAVIOUR_NAMES = {
    "turns_per_rollout": ("turns per rollout", ""),
    "multi_cell_turns": ("turns with several code blocks", "%"),
    "doc_lookups": ("doc look-ups per rollout", ""),
    "assumptions": ("“assume” per rollout", ""),
    "dummies": ("“dummy” per rollout", ""),
    "give_up_rate": ("give-up rate after errors", "%"),
    "execution_errors": ("turns whose code failed", "%"),
    "diversity": ("distinct solutions among successes", "%"),
}


def score_table(scores: Sequence[Scores]) -> str:
    """Base beside selected: TGC and SGC of each split with clustered standard errors, then TGC by difficulty, then
    TGC and SGC at the training budget where they were played again."""
    rows: list[Sequence[str]] = []
    for s in scores:
        name = SPLIT_NAMES.get(s.split, s.split)
        rows += _paired_rows(s, s)
        for difficulty, d in sorted(s.per_difficulty.items()):
            figures = percent(d.base_tgc, d.base_tgc_se), percent(d.tgc, d.tgc_se), gain(d.tgc - d.base_tgc, None)
            rows.append((f"{name} TGC, difficulty {difficulty}, {d.tasks} tasks", *figures))
        if s.training_budget is not None and s.training_budget.played_again:
            rows += _paired_rows(s.training_budget, s, " at the training budget")
    return table(["percent (own metric: its unit) ± standard error", "base", "selected", "difference"], rows)


def budget_notes(scores: Sequence[Scores]) -> str:
    """The limits of the test budget and of the training budget; "" where the training budget was not asked for."""
    found = [_budget_note(s.training_budget) for s in scores if s.training_budget is not None]
    return "".join(f'<p class="fine">{escape(note)}</p>' for note in dict.fromkeys(found))


def _budget_note(found: TrainingBudget) -> str:
    if not found.played_again:
        return f"The training budget is the test budget ({found.limits.in_words}): nothing was played twice."
    return f"Training budget: {found.limits.in_words}. Test budget, of all other rows: {found.test_limits.in_words}."


def _paired_rows(found: PairedScores, of: Scores, where: str = "") -> Iterator[Sequence[str]]:
    """Rows of TGC, SGC and the world's own metric on the tasks of the scores `of`."""
    name = f"{SPLIT_NAMES.get(of.split, of.split)} {{}}{where}, {{}}"
    void = f" ({void_note(found.void_rollouts)})" if found.void_rollouts else ""
    tgc = percent(found.base_tgc, found.base_tgc_se), percent(found.tgc, found.tgc_se)
    yield name.format("TGC", f"{of.tasks} tasks{void}"), *tgc, gain(found.tgc_gain, found.tgc_gain_se)
    sgc = percent(found.base_sgc, found.base_sgc_se), percent(found.sgc, found.sgc_se)
    yield name.format("SGC", f"{of.scenarios} scenarios"), *sgc, gain(found.sgc_gain, found.sgc_gain_se)
    own = found.own
    if own is not None:
        figures = percent(own.base, own.base_se), percent(own.value, own.value_se), gain(own.gain, own.gain_se)
        yield name.format(own.name, "mean of the episodes"), *figures


def usage_table(documents: Sequence[Evaluation | Scores]) -> str:
    """Tokens and cost of a model behind an API, dev and test splits; "" for an engine that costs nothing."""
    used = [("dev" if isinstance(d, Evaluation) else SPLIT_NAMES.get(d.split, d.split), d.usage) for d in documents]
    rows = [
        (
            f"{name}: {', '.join(usage.models)}",
            f"{usage.answers:,}",
            f"{usage.retries:,}",
            f"{usage.prompt_tokens:,}",
            f"{usage.cached_tokens:,}",
            f"{usage.answer_tokens:,}",
            f"{usage.cost_usd:,.2f}",
        )
        for name, usage in used
        if usage is not None
    ]
    heads = ["API use", "answers", "retries", "prompt tokens", "of these cached", "answer tokens", "cost, USD"]
    return table(heads, rows) if rows else ""


def behaviour_table(scores: Sequence[Scores]) -> str:
    """The behaviour metrics of the LOOP paper before and after training."""
    heads = [f"{SPLIT_NAMES.get(s.split, s.split)} {who}" for s in scores for who in ("base", "selected")]
    rows = []
    for field, (label, unit) in BEHAVIOUR_NAMES.items():
        sides = [side for s in scores for side in (s.behaviour.base, s.behaviour.selected)]
        rows.append([label, *(_behaviour(side, field, unit) for side in sides)])
    return table(["per policy", *heads], rows)


def warning_list(warnings: Iterable[CollapseWarning], notes: Iterable[tuple[int, str]]) -> str:
    """Warnings and notes, each with its iteration."""
    lines = [("sign", w.iteration, f"{w.rule}: {w.evidence}") for w in sorted(warnings, key=lambda w: w.iteration)] + [
        ("note", i, note) for i, note in notes
    ]
    if not lines:
        return '<p class="fine">No sign of collapse in any iteration.</p>'
    items = (f'<li class="{kind}"><b>iteration {i}</b> {escape(text)}</li>' for kind, i, text in lines)
    return f'<ul class="warnings">{"".join(items)}</ul>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the rows."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr><th>{escape(r[0])}</th>{''.join(f'<td>{escape(c)}</td>' for c in r[1:])}</tr>" for r in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def void_note(rollouts: int) -> str:
    return f"{rollouts} rollouts that the world broke count as failures"


def percent(value: float, error: float | None) -> str:
    return f"{value:.1f}" + ("" if error is None else f" ± {error:.1f}")


def gain(value: float, error: float | None) -> str:
    """A difference with its sign; one that rounds to zero has none."""
    rounded = round(value, 1)
    sign = "+" if rounded > 0 else "−" if rounded < 0 else ""  # noqa: RUF001 - a minus sign
    return f"{sign}{percent(abs(rounded), error)}"


def _behaviour(side: Behaviour, field: str, unit: str) -> str:
    value = getattr(side, field)
    if value is None:
        return "–"  # noqa: RUF001
    return f"{100 * value:.1f} %" if unit == "%" else f"{value:.2f}"
