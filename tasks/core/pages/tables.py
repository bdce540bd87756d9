"""The report's tables as HTML (scores, behaviour, warnings; all text is escaped), and tables in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from tasks.core.records.scores import Behaviour, Evaluation, PairedScores, Scores, TrainingBudget
from tasks.core.records.training import CollapseWarning

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
    """Return the scores of base and selected policy side by side.

    TGC and SGC of each split with clustered standard errors, TGC by difficulty, pass^k and best@k of all its runs, then
    TGC and SGC at the training budget where tasks were played again for it.
    """
    rows: list[Sequence[str]] = []
    for s in scores:
        name = SPLIT_NAMES.get(s.split, s.split)
        rows += _paired_rows(s, s)
        for difficulty, d in sorted(s.per_difficulty.items()):
            figures = percent(d.base_tgc, d.base_tgc_se), percent(d.tgc, d.tgc_se), gain(d.tgc - d.base_tgc, None)
            rows.append((f"{name} TGC, difficulty {difficulty}, {d.tasks} tasks", *figures))
        rows += _runs_rows(s, name)
        if s.training_budget is not None and s.training_budget.played_again:
            rows += _paired_rows(s.training_budget, s, " at the training budget")
    return table(["percent (own metric: its unit) ± standard error", "base", "selected", "difference"], rows)


def budget_notes(scores: Sequence[Scores]) -> str:
    """Return the limits of test and training budget as HTML; "" if no training budget was requested."""
    notes = [_budget_note(s.training_budget) for s in scores if s.training_budget is not None]
    return "".join(f'<p class="fine">{escape(note)}</p>' for note in dict.fromkeys(notes))


def _budget_note(budget: TrainingBudget) -> str:
    if not budget.played_again:
        return f"The training budget is the test budget ({budget.limits.in_words}): nothing was played twice."
    return f"Training budget: {budget.limits.in_words}. Test budget, of all other rows: {budget.test_limits.in_words}."


def _paired_rows(scores: PairedScores, of: Scores, where: str = "") -> Iterator[Sequence[str]]:
    """Yield rows of TGC, SGC and the world's own metric on the tasks of the scores `of`."""
    name = f"{SPLIT_NAMES.get(of.split, of.split)} {{}}{where}, {{}}"
    void = f" ({void_note(scores.void_rollouts)})" if scores.void_rollouts else ""
    tgc = percent(scores.base_tgc, scores.base_tgc_se), percent(scores.tgc, scores.tgc_se)
    yield name.format("TGC", f"{of.tasks} tasks{void}"), *tgc, gain(scores.tgc_gain, scores.tgc_gain_se)
    sgc = percent(scores.base_sgc, scores.base_sgc_se), percent(scores.sgc, scores.sgc_se)
    yield name.format("SGC", f"{of.scenarios} scenarios"), *sgc, gain(scores.sgc_gain, scores.sgc_gain_se)
    metric = scores.own
    if metric is not None:
        figures = (
            percent(metric.base, metric.base_se),
            percent(metric.value, metric.value_se),
            gain(metric.gain, metric.gain_se),
        )
        yield name.format(metric.name, "mean of the episodes"), *figures


def _runs_rows(scores: Scores, name: str) -> Iterator[Sequence[str]]:
    """Yield rows of pass^k and best@k for as many runs as there are; none for one run, where both are TGC."""
    k = max(map(int, scores.per_k), default=1)
    if k == 1:
        return
    found = scores.per_k[str(k)]
    passed, best = percent(found.pass_hat, found.pass_hat_se), percent(found.best_of, found.best_of_se)
    every_gain, best_gain = found.pass_hat - found.base_pass_hat, found.best_of - found.base_best_of
    yield f"{name} pass^{k}, all of {k} runs", percent(found.base_pass_hat, None), passed, gain(every_gain, None)
    yield f"{name} best@{k}, one of {k} runs", percent(found.base_best_of, None), best, gain(best_gain, None)


def usage_table(documents: Sequence[Evaluation | Scores]) -> str:
    """Return tokens and cost of models behind APIs, on dev and test splits; "" where nothing is paid for."""
    named = [("dev" if isinstance(d, Evaluation) else SPLIT_NAMES.get(d.split, d.split), d) for d in documents]
    used = [(name, d.usage) for name, d in named] + [(f"{name}, the world", d.world_usage) for name, d in named]
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
    """Return the LOOP paper's behaviour metrics before and after training."""
    heads = [f"{SPLIT_NAMES.get(s.split, s.split)} {who}" for s in scores for who in ("base", "selected")]
    rows = []
    for field, (label, unit) in BEHAVIOUR_NAMES.items():
        sides = [side for s in scores for side in (s.behaviour.base, s.behaviour.selected)]
        rows.append([label, *(_behaviour(side, field, unit) for side in sides)])
    return table(["per policy", *heads], rows)


def warning_list(warnings: Iterable[CollapseWarning], notes: Iterable[tuple[int, str]]) -> str:
    """Return warnings and notes as a list, each with its iteration."""
    lines = [("sign", w.iteration, f"{w.rule}: {w.evidence}") for w in sorted(warnings, key=lambda w: w.iteration)] + [
        ("note", i, note) for i, note in notes
    ]
    if not lines:
        return '<p class="fine">No sign of collapse in any iteration.</p>'
    items = (f'<li class="{kind}"><b>iteration {i}</b> {escape(text)}</li>' for kind, i, text in lines)
    return f'<ul class="warnings">{"".join(items)}</ul>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column names the rows."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr><th>{escape(r[0])}</th>{''.join(f'<td>{escape(c)}</td>' for c in r[1:])}</tr>" for r in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def void_note(rollouts: int) -> str:
    return f"{rollouts} rollouts that the world broke count as failures"


def percent(value: float, error: float | None) -> str:
    return f"{value:.1f}" + ("" if error is None else f" ± {error:.1f}")


def gain(value: float, error: float | None) -> str:
    """Return a difference with its sign; without a sign if it rounds to zero."""
    rounded = round(value, 1)
    sign = "+" if rounded > 0 else "−" if rounded < 0 else ""  # noqa: RUF001 - a minus sign
    return f"{sign}{percent(abs(rounded), error)}"


def _behaviour(side: Behaviour, field: str, unit: str) -> str:
    value = getattr(side, field)
    if value is None:
        return "–"  # noqa: RUF001
    return f"{100 * value:.1f} %" if unit == "%" else f"{value:.2f}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns, so that it is readable in a terminal too."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=True)) + " |" for r in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
