"""A study as tables of text: the rows that Markdown and the page share, and CSV. Pure."""

import csv
import io
from collections.abc import Iterator, Sequence
from importlib.resources import files
from statistics import fmean

from tasks.core.config.splits import TEST_SPLITS
from tasks.core.evaluation.differences import METRICS
from tasks.core.pages.tables import SPLIT_NAMES
from tasks.core.records.study import NO_FINE_TUNING, MethodDifference, MethodOrdering, MethodScore, Study, StudyRun

COLUMNS = [(split, metric) for split in TEST_SPLITS for metric in METRICS]
HEADS = [f"{SPLIT_NAMES[split]} {metric.upper()}" for split, metric in COLUMNS]
NONE = "-"
Row = Sequence[str]


def score_rows(study: Study) -> list[Row]:
    """Method, then mean, standard deviation and interval over the training seeds of each split and metric."""
    found: dict[tuple[str, ...], MethodScore] = {(one.method, one.split, one.metric): one for one in study.scores}
    methods = dict.fromkeys(one.method for one in study.scores)
    return [(method, *(_mean(found[method, *column]) for column in COLUMNS)) for method in methods]


def scores_title(study: Study) -> str:
    """The title of `score_rows`."""
    return f"Scores: percent, mean ± standard deviation over training seeds, {level(study)} interval of the mean"


def difference_rows(study: Study) -> list[Row]:
    """Method, seeds shared with `study.against`, then the difference from it, interval and corrected p-value."""
    found: dict[tuple[str, ...], MethodDifference] = {(d.method, d.split, d.metric): d for d in study.differences}
    methods = {one.method: str(one.seeds) for one in study.differences}
    return [
        (method, seeds, *(_difference(found.get((method, *column))) for column in COLUMNS))
        for method, seeds in methods.items()
    ]


def differences_title(study: Study) -> str:
    """The title of `difference_rows`."""
    return f"Difference from {study.against}: points, {level(study)} interval, p-value after Holm's correction"


DIFFERENCE_HEADS = ["shared seeds", *HEADS]


def ordering_rows(study: Study) -> list[Row]:
    """The claim, seeds that both methods have, then by how much the first is above the second, and what that says."""
    found: dict[tuple[str, ...], MethodOrdering] = {(o.method, o.below, o.split, o.metric): o for o in study.orderings}
    claims = {(one.method, one.below): str(one.seeds) for one in study.orderings}
    return [
        (f"{above} > {below}", seeds, *(_claimed(found[above, below, *column]) for column in COLUMNS))
        for (above, below), seeds in claims.items()
    ]


def orderings_title(study: Study) -> str:
    """The title of `ordering_rows`."""
    return f"Orderings: as claimed or reversed where the {level(study)} interval leaves zero out, else open"


def cost_rows(study: Study) -> list[Row]:
    """Method, seeds, and per run the means of rollouts, tokens, optimizer steps, wall and CPU minutes."""
    return [(method, str(len(runs)), *_cost(runs)) for method, runs in runs_by_method(study).items()]


COST_TITLE = "Cost: mean per run, without stages that an equal run had done before"
COST_HEADS = ["seeds", "training rollouts", "sampled tokens", "optimizer steps", "wall, min", "CPU, min"]


PAPER_TITLE = "The paper's own figures (Qwen2.5-32B on AppWorld): not measured here"


def paper_rows(study: Study) -> list[Row]:
    """The own figures of the paper (Qwen2.5-32B on AppWorld); none where none of its methods was trained."""
    methods = {score.method for score in study.scores}
    with (files("tasks.core.study") / "paper_results.csv").open(encoding="utf-8") as stream:
        known = [row for row in csv.DictReader(stream) if row["method"] in methods]
    if all(row["method"] == NO_FINE_TUNING for row in known):
        return []
    return [(row["method"], *(row[f"{s}_{m}"] for s, m in COLUMNS)) for row in known]


def command_rows(study: Study) -> list[Row]:
    """Method and the command that writes the parameters of its first seed."""
    return [(method, runs[0].command) for method, runs in runs_by_method(study).items()]


def warning_rows(study: Study) -> list[Row]:
    """Method, seed, iteration, rule and evidence of each sign of a collapse."""
    return [
        (run.method, str(run.seed), str(found.iteration), found.rule, found.evidence)
        for run in study.runs
        for found in run.warnings
    ]


WARNING_TITLE = "Signs of a collapse"
WARNING_HEADS = ["seed", "iteration", "rule", "evidence"]
NO_WARNING = "None in any iteration of any run."


def runs_csv(study: Study) -> str:
    """A line for each run, split and metric."""
    costs = ["rollouts", "tokens", "wall_s", "cpu_s"]
    heads = ["method", "seed", "experiment", "split", "metric", "base", "selected", *costs]
    rows: list[Sequence[object]] = []
    for run in study.runs:
        for split, metric in COLUMNS:
            base, own = getattr(run.base_scores[split], metric), getattr(run.scores[split], metric)
            cost = (run.rollouts, run.tokens, round(run.wall_s, 1), round(run.cpu_s, 1))
            rows.append([run.method, run.seed, run.experiment, split, metric, base, own, *cost])
    return _comma_separated(heads, rows)


def methods_csv(study: Study) -> str:
    """A line for each method, split and metric: its score over the seeds, and its difference from `study.against`."""
    score = ["method", "split", "metric", "seeds", "mean", "spread", "low", "high"]
    difference = ["seeds", "difference", "low", "high", "p_value", "corrected_p_value"]
    found = {(d.method, d.split, d.metric): d for d in study.differences}
    rows = [
        [*(getattr(one, name) for name in score), study.against]
        + [getattr(found.get((one.method, one.split, one.metric)), name, None) for name in difference]
        for one in study.scores
    ]
    heads = [*score, "against", "shared_seeds", "difference", "difference_low", "difference_high", *difference[-2:]]
    return _comma_separated(heads, rows)


def _comma_separated(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """None is an empty cell."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([heads, *rows])
    return stream.getvalue()


def level(study: Study) -> str:
    """The confidence of the study's intervals, in percent."""
    return f"{100 * study.confidence:g}%"


def runs_by_method(study: Study) -> dict[str, list[StudyRun]]:
    """The runs of each method, in their order."""
    found: dict[str, list[StudyRun]] = {}
    for run in study.runs:
        found.setdefault(run.method, []).append(run)
    return found


def _cost(runs: Sequence[StudyRun]) -> Iterator[str]:
    for name in ("rollouts", "tokens", "optimizer_steps"):
        yield f"{fmean(getattr(run, name) for run in runs):,.0f}"
    for name in ("wall_s", "cpu_s"):
        yield f"{fmean(getattr(run, name) for run in runs) / 60:.1f}"


def _mean(score: MethodScore) -> str:
    if score.spread is None or score.low is None or score.high is None:
        return f"{score.mean:.1f}"
    return mean_text(score.mean, score.spread, score.low, score.high)


def mean_text(mean: float, spread: float, low: float, high: float, sign: str = "") -> str:
    """A mean over seeds with its standard deviation and interval; `sign` "+": positive ones have theirs."""
    return f"{mean:{sign}.1f} ± {spread:.1f} ({low:{sign}.1f} to {high:{sign}.1f})"


def _claimed(one: MethodOrdering) -> str:
    verdict = "open" if one.low is None or one.high is None or one.low <= 0 <= one.high else None
    return f"{verdict or ('as claimed' if one.difference > 0 else 'reversed')}: {_difference(one)}"


def _difference(one: MethodDifference | None) -> str:
    if one is None:
        return NONE
    interval = "" if one.low is None or one.high is None else f" ({one.low:+.1f} to {one.high:+.1f})"
    p_value = "" if one.corrected_p_value is None else f", p {one.corrected_p_value:.2g}"
    return f"{one.difference:+.1f}{interval}{p_value}"
