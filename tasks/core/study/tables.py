"""A study as tables of text: CSV, and the rows that Markdown and the page share. Pure."""

import csv
import io
from collections.abc import Iterator, Sequence
from importlib.resources import files
from statistics import fmean

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.differences import METRICS
from tasks.core.pages.tables import SPLIT_NAMES
from tasks.core.records.study import NO_FINE_TUNING, MethodDifference, MethodOrdering, MethodScore, Study, StudyRun
from tasks.core.study.comparing import ONE_SEED

COLUMNS = [(split, metric) for split in TEST_SPLITS for metric in METRICS]
HEADS = [f"{SPLIT_NAMES[split]} {metric.upper()}" for split, metric in COLUMNS]
NONE = "-"
Row = Sequence[str]


def score_rows(study: Study) -> list[Row]:
    """Return method, then mean and standard deviation over training seeds for each split and metric."""
    score_of: dict[tuple[str, ...], MethodScore] = {
        (score.method, score.split, score.metric): score for score in study.scores
    }
    methods = dict.fromkeys(score.method for score in study.scores)
    return [(method, *(_mean(score_of[method, *column]) for column in COLUMNS)) for method in methods]


SCORES_TITLE = "Scores: percent, mean ± standard deviation over training seeds"


def difference_rows(study: Study) -> list[Row]:
    """Return method, seeds shared with `study.against`, then difference, interval and corrected p-value."""
    difference_of: dict[tuple[str, ...], MethodDifference] = {
        (d.method, d.split, d.metric): d for d in study.differences
    }
    methods = {difference.method: str(difference.seeds) for difference in study.differences}
    return [
        (method, seeds, *(_difference(difference_of.get((method, *column))) for column in COLUMNS))
        for method, seeds in methods.items()
    ]


def differences_title(study: Study) -> str:
    """Return the title of `difference_rows`."""
    return f"Difference from {study.against}, points"


def differences_note(study: Study) -> str:
    """Return what a reader must know of `difference_rows`."""
    return f"{_intervals(study)} p is after Holm's correction over the methods of a column."


DIFFERENCE_HEADS = ["shared seeds", *HEADS]


def ordering_rows(study: Study) -> list[Row]:
    """Return claim, seeds that both methods have, then what is shown and how far the first is above the second."""
    ordering_of: dict[tuple[str, ...], MethodOrdering] = {
        (o.method, o.below, o.split, o.metric): o for o in study.orderings
    }
    claims = {(ordering.method, ordering.below): str(ordering.seeds) for ordering in study.orderings}
    return [
        (
            f"{above} > {below}",
            seeds,
            *(_claimed(ordering_of[above, below, *column], study.confidence) for column in COLUMNS),
        )
        for (above, below), seeds in claims.items()
    ]


ORDERINGS_TITLE = "Orderings: the study's claims, points"


def orderings_note(study: Study) -> str:
    """Return what a reader must know of `ordering_rows`."""
    return (
        "As claimed or reversed where p, after Holm's correction over the claims of a column, is below "
        f"{1 - study.confidence:.2g}, else open. {_intervals(study)}"
    )


def _intervals(study: Study) -> str:
    return f"{level(study)} intervals, each for itself, are of another draw of seeds and of tasks of this kind."


def cost_rows(study: Study) -> list[Row]:
    """Return method, seeds, and mean rollouts, tokens, optimizer steps, wall and CPU minutes per run."""
    return [(method, str(len(runs)), *_cost(runs)) for method, runs in runs_by_method(study).items()]


COST_TITLE = "Cost: mean per run, without stages that an equal run had done before"
COST_HEADS = ["seeds", "training rollouts", "sampled tokens", "optimizer steps", "wall, min", "CPU, min"]


PAPER_TITLE = "The paper's own figures (Qwen2.5-32B on AppWorld): not measured here"


def paper_rows(study: Study) -> list[Row]:
    """Return the paper's own figures (Qwen2.5-32B on AppWorld); nothing if none of its methods was trained."""
    methods = {score.method for score in study.scores}
    with (files("tasks.core.study") / "paper_results.csv").open(encoding="utf-8") as stream:
        known = [row for row in csv.DictReader(stream) if row["method"] in methods]
    if all(row["method"] == NO_FINE_TUNING for row in known):
        return []
    return [(row["method"], *(row[f"{s}_{m}"] for s, m in COLUMNS)) for row in known]


def command_rows(study: Study) -> list[Row]:
    """Return each method and the command that writes the parameters of its first seed."""
    return [(method, runs[0].command) for method, runs in runs_by_method(study).items()]


def warning_rows(study: Study) -> list[Row]:
    """Return method, seed, iteration, rule and evidence of each sign of a collapse."""
    return [
        (run.method, str(run.seed), str(warning.iteration), warning.rule, warning.evidence)
        for run in study.runs
        for warning in run.warnings
    ]


WARNING_TITLE = "Signs of a collapse"
WARNING_HEADS = ["seed", "iteration", "rule", "evidence"]
NO_WARNING = "None in any iteration of any run."


def runs_csv(study: Study) -> str:
    """Return a line per run, split and metric."""
    costs = ["rollouts", "tokens", "wall_s", "cpu_s"]
    heads = ["method", "seed", "experiment", "split", "metric", "base", "selected", *costs]
    rows: list[Sequence[object]] = []
    for run in study.runs:
        for split, metric in COLUMNS:
            base, selected = getattr(run.base_scores[split], metric), getattr(run.scores[split], metric)
            cost = (run.rollouts, run.tokens, round(run.wall_s, 1), round(run.cpu_s, 1))
            rows.append([run.method, run.seed, run.experiment, split, metric, base, selected, *cost])
    return _comma_separated(heads, rows)


def methods_csv(study: Study) -> str:
    """Return a line per method, split and metric: its score over the seeds and its difference from `study.against`."""
    score = ["method", "split", "metric", "seeds", "mean", "spread"]
    difference = ["seeds", "difference", "low", "high", "p_value", "corrected_p_value"]
    difference_of = {(d.method, d.split, d.metric): d for d in study.differences}
    rows = [
        [*(getattr(method_score, name) for name in score), study.against]
        + [
            getattr(difference_of.get((method_score.method, method_score.split, method_score.metric)), name, None)
            for name in difference
        ]
        for method_score in study.scores
    ]
    heads = [*score, "against", "shared_seeds", "difference", "difference_low", "difference_high", *difference[-2:]]
    return _comma_separated(heads, rows)


def _comma_separated(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the rows as CSV; None becomes an empty cell."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([heads, *rows])
    return stream.getvalue()


def level(study: Study) -> str:
    """Return the confidence of the study's intervals, in percent."""
    return f"{100 * study.confidence:g}%"


def runs_by_method(study: Study) -> dict[str, list[StudyRun]]:
    """Return the runs of each method, in order."""
    runs: dict[str, list[StudyRun]] = {}
    for run in study.runs:
        runs.setdefault(run.method, []).append(run)
    return runs


def _cost(runs: Sequence[StudyRun]) -> Iterator[str]:
    for name in ("rollouts", "tokens", "optimizer_steps"):
        yield f"{fmean(getattr(run, name) for run in runs):,.0f}"
    for name in ("wall_s", "cpu_s"):
        yield f"{fmean(getattr(run, name) for run in runs) / 60:.1f}"


def _mean(score: MethodScore) -> str:
    return f"{score.mean:.1f}" if score.spread is None else mean_text(score.mean, score.spread)


def mean_text(mean: float, spread: float, sign: str = "") -> str:
    """Return a mean over seeds with its standard deviation; `sign` "+" shows the sign of positive values."""
    return f"{mean:{sign}.1f} ± {spread:.1f}"


def _claimed(ordering: MethodOrdering, confidence: float) -> str:
    return f"{_verdict(ordering, confidence)}: {_difference(ordering)}"


def _verdict(ordering: MethodOrdering, confidence: float) -> str:
    if ordering.seeds < 2:
        return ONE_SEED.lower()
    if ordering.corrected_p_value is None:
        return "no test"
    if ordering.corrected_p_value >= 1 - confidence:
        return "open"
    return "as claimed" if ordering.difference > 0 else "reversed"


def _difference(tested: MethodDifference | None) -> str:
    if tested is None:
        return NONE
    interval = "" if tested.low is None or tested.high is None else f" ({tested.low:+.1f} to {tested.high:+.1f})"
    p_value = "" if tested.corrected_p_value is None else f", p {tested.corrected_p_value:.2g}"
    return f"{tested.difference:+.1f}{interval}{p_value}"
