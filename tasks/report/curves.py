"""The charts of the report: the figures of a run by iteration, without wall clocks, and the outcome of every task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tasks.core.collapse.rules import read_warnings
from tasks.core.config.dag import iteration_key
from tasks.core.config.params import Params
from tasks.core.pages.charts import Points, line_chart, nice_ticks
from tasks.core.pages.tables import void_note
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.records.scores import Evaluation
from tasks.core.records.training import CURVE_FIGURES, CollapseWarning, Metrics
from tasks.core.signal_coverage import SuccessCounts

ROW_HEIGHT = 14
"""Height of a row in pixels, as in the style sheet."""


@dataclass(frozen=True)
class Cell:
    """One task in one iteration, over its rollouts that are not void."""

    mean_return: float
    success_share: float
    rollouts: int = 1
    varies: bool = False
    """Whether the returns differ, so that the group carries a signal."""


TaskProgress = Sequence[tuple[str, Mapping[int, Cell]]]
"""(task id, {iteration: cell}) for each training task."""


def heat_map(rows: TaskProgress, last: int) -> str:
    """Return both maps, mean return and share of successes; the page shows one. Darker is more, blank was not drawn.

    One path per shade keeps it small.
    """
    labels = "".join(f"<li>{escape(task)}</li>" for task, _ in rows)
    maps = "".join(f'<g class="{name}">{_squares(rows, name)}</g>' for name in ("mean_return", "success_share") if rows)
    ticks = "".join(
        f'<span style="left:{100 * (t - 0.5) / last:.2f}%">{t:g}</span>' for t in nice_ticks(0, last) if 1 <= t <= last
    )
    void = " ".join(VOID_REASONS)
    return (
        f'<div id="heat-figure">{_LEGEND}<div id="heat" data-shows="mean_return"><ol>{labels}</ol>'
        f'<div><div class="ticks">{ticks}</div><svg id="heat-plot" data-last="{last}" data-void="{void}" '
        f'viewBox="0 0 {last} {max(len(rows), 1)}" preserveAspectRatio="none" '
        f'style="height:{len(rows) * ROW_HEIGHT}px" role="img" aria-label="outcome by task and iteration">{maps}</svg>'
        f'<div class="ticks">{ticks}</div></div></div><div id="heat-note" hidden></div></div>'
    )


def _squares(rows: TaskProgress, name: str) -> str:
    levels: dict[int, list[str]] = {}
    for y, (_, cells) in enumerate(rows):
        for iteration, cell in cells.items():
            levels.setdefault(round(getattr(cell, name) * 10), []).append(f"M{iteration - 1} {y}h1v1h-1z")
    return "".join(f'<path class="h{level}" d="{"".join(levels[level])}"/>' for level in sorted(levels))


_SCALE = "".join(f'<i class="k{level}"></i>' for level in range(11))
_LEGEND = (
    '<div class="legend"><label><input type="radio" name="shows" value="mean_return" checked> mean return</label>'
    '<label><input type="radio" name="shows" value="success_share"> share of successes</label>'
    f'<span class="scale">0 {_SCALE} 1; blank: not drawn</span>'
    '<span class="hint">Point at a square to see what it is, click to read its rollouts.</span></div>'
)


def coverage_curves(progress: TaskProgress, last: int) -> Mapping[str, Points]:
    """Return the lines of the chart over the iterations 1 .. `last`; a line omits iterations without data for it.

    Expected: for an iteration's groups, each with its number of rollouts, from the rollouts played before it.
    """
    expected: list[tuple[int, float]] = []
    observed: dict[str, list[tuple[int, float]]] = {"by success": [], "by return": []}
    counts = SuccessCounts(task for task, _ in progress)
    for iteration in range(1, last + 1):
        drawn = {task: cells[iteration] for task, cells in progress if iteration in cells}
        groups = {task: cell for task, cell in drawn.items() if cell.rollouts > 1}
        if groups:
            if counts:
                expected.append((iteration, _expected(groups, counts)))
            mixed = [0 < cell.success_share < 1 for cell in groups.values()]
            varied = [cell.varies for cell in groups.values()]
            for name, flags in (("by success", mixed), ("by return", varied)):
                observed[name].append((iteration, sum(flags) / len(flags)))
        for task, cell in drawn.items():
            counts.add(task, cell.success_share * cell.rollouts, cell.rollouts)
    return {"expected": expected, **observed}


def _expected(groups: Mapping[str, Cell], counts: SuccessCounts) -> float:
    """Return the mean over the groups of the probability of a signal."""
    shares = {size: counts.shares(size) for size in {cell.rollouts for cell in groups.values()}}
    return sum(shares[cell.rollouts][task] for task, cell in groups.items()) / len(groups)


FALL = 10.0
"""Points of TGC under the best before that count as lost skill,"""
PATIENCE = 2
"""in this many evaluations in a row."""


def lost_skill(dev_tgc: Mapping[int, float]) -> list[CollapseWarning]:
    """Return a warning at the first of PATIENCE evaluations in a row that are FALL points or more under the best.

    `dev_tgc`: in percent, by the evaluated iteration, 0 the base policy. Empty where there is no such fall.
    """
    best, low = 0.0, list[int]()
    for iteration, value in sorted(dev_tgc.items()):
        low = [*low, iteration] if value <= best - FALL else []
        if len(low) == PATIENCE:
            evidence = f"TGC on dev fell {FALL:g} points or more under its best ({best:.1f}) and stayed there"
            return [CollapseWarning(rule="lost_skill", iteration=low[0], evidence=evidence)]
        best = max(best, value)
    return []


@dataclass(frozen=True)
class RunStats:
    """A run in numbers. Lists hold one value per iteration, iteration 1 first; None where there is no value.

    Wall-clock figures are left out, so that equal runs have equal reports.
    """

    curves: Mapping[str, list[float | None]]
    notes: list[tuple[int, str]]
    """(iteration, the note of its update, or that world errors took rollouts of it or of its dev evaluation)."""
    warnings: list[CollapseWarning]
    """The collapse monitor's warnings, by iteration."""
    evaluations: Mapping[int, Evaluation]
    """Dev scores by iteration, 0 (the base) included."""


def read_run_stats(layout: Layout, params: Params) -> RunStats:
    """Raises ArtifactError naming the file that is missing or broken."""
    metrics = [read_document(layout.metrics(key), Metrics) for key in params.dag.previous]
    evaluations = {int(key[1:]): read_document(layout.evaluation(key), Evaluation) for key in params.dag.evaluated}
    return RunStats(
        curves=_curves(metrics),
        notes=[
            *((i, item.note) for i, item in enumerate(metrics, 1) if item.note),
            *(
                (i, f"world errors took {item.lost_rollouts} rollouts of {item.shrunk_groups} groups")
                for i, item in enumerate(metrics, 1)
                if item.lost_rollouts
            ),
            *((i, f"dev TGC: {void_note(e.void_rollouts)}") for i, e in evaluations.items() if e.void_rollouts),
        ],
        warnings=read_warnings(layout, iteration_key(params.iterations)),
        evaluations=evaluations,
    )


def _curves(metrics: list[Metrics]) -> dict[str, list[float | None]]:
    curves = {name: [getattr(item, name) for item in metrics] for name in CURVE_FIGURES}
    for name in ("mean", "max"):
        curves[f"mismatch_{name}"] = [m.engine_mismatch and getattr(m.engine_mismatch, name) for m in metrics]
    for name in ("length", "repetition", "distinct"):
        curves[name] = [item.responses and getattr(item.responses, name) for item in metrics]
    curves["information"] = [item.prompt_information and item.prompt_information.share for item in metrics]
    return curves


@dataclass(frozen=True)
class Chart:
    """A chart over the iterations."""

    title: str
    unit: str
    about: str
    """Its meaning, and how to read it: a tooltip in the report, a row in docs/metrics.md."""
    series: Mapping[str, str]
    """By the name in its legend, the name of a curve (`figures_of`)."""


CHARTS = (
    Chart(
        "TGC and SGC on dev",
        "percent",
        "Tasks, and scenarios as a whole, that the policy after an iteration solves on dev. It should rise; the "
        "selected checkpoint is the highest.",
        {"TGC": "dev_tgc", "SGC": "dev_sgc"},
    ),
    Chart(
        "mean return of the rollouts",
        "share of tests",
        "Mean return of the training rollouts, with temperature 1. It should rise, with noise: each iteration plays "
        "other tasks.",
        {"return": "mean_return"},
    ),
    Chart(
        "std of returns within groups",
        "",
        "Standard deviation of the returns of one task's rollouts, mean over the tasks. At 0 nothing is learned: all "
        "rollouts of a task are equally good.",
        {"std": "group_return_std"},
    ),
    Chart(
        "different responses per task, repeated 4-grams",
        "share",
        "Different: of one task's rollouts, the share that no other repeats word for word. Repeated: the share of a "
        "rollout's 4-grams that it had before. A collapse has few different ones, or many repeated.",
        {"different": "distinct", "repeated": "repetition"},
    ),
    Chart("length of a response", "tokens", "Tokens that the policy sampled in a rollout, mean.", {"length": "length"}),
    Chart(
        "information of responses on prompts",
        "share of the most, in the batch that trains",
        "How much a first turn says about which prompt it answers, as a share of what is possible. Near 0 the policy "
        "says the same to every task.",
        {"information": "information"},
    ),
    Chart(
        "entropy",
        "nats per token",
        "How undecided the policy is at a token. It falls while it learns; near 0 it no longer explores.",
        {"entropy": "entropy"},
    ),
    Chart(
        "KL, before to after an update",
        "nats",
        "How far the update moved the policy, by the k3 estimate at its last minibatch.",
        {"KL": "kl"},
    ),
    Chart(
        "gradient norm before clipping",
        "",
        "Mean over the steps of an update. One far above the others is a sign of a broken batch.",
        {"norm": "grad_norm"},
    ),
    Chart(
        "clipped importance weights",
        "share",
        "Tokens (or turns, rollouts) whose weight pi / pi_old is at the clip, so that they no longer pull the policy.",
        {"clipped": "clip_fraction"},
    ),
    Chart(
        "rollouts that trained",
        "count",
        "Rollouts with an advantage, after the filters. None of a task whose rollouts were equally good.",
        {"kept": "kept_rollouts"},
    ),
    Chart(
        "what world errors took",
        "count",
        "Rollouts that the world broke, and groups that are smaller for it. It should be 0.",
        {"rollouts": "lost_rollouts", "groups made smaller": "shrunk_groups"},
    ),
    Chart(
        "groups with a signal",
        "share",
        "A group is the rollouts of one task; it has a signal where they are not all equally good, by success or by "
        "return. Expected: 1 - p^K - (1 - p)^K from the task's successes before.",
        {"expected": "expected", "by success": "by success", "by return": "by return"},
    ),
    Chart(
        "engine against learner",
        "difference of log-probs, nats",
        "The engine that samples and the learner that trains compute the same log-probs with other kernels. A mean "
        "over the noise of the dtype says that they don't have the same policy.",
        {"mean": "mismatch_mean", "max": "mismatch_max"},
    ),
)


def charts(
    stats: RunStats,
    last: int,
    marks: Sequence[int],
    chosen: int,
    coverage: Mapping[str, Points] | None = None,
    return_unit: str = "share of tests",
) -> str:
    """Return the learning curves; dashed lines mark iterations with a warning, a full line the selected iteration."""
    figures = figures_of(stats, coverage or {})
    drawn = []
    for chart in CHARTS:
        unit = return_unit if "mean_return" in chart.series.values() else chart.unit
        series = {label: figures[name] for label, name in chart.series.items() if name in figures}
        drawn.append(line_chart(chart.title, unit, series, last, marks, chosen, about=chart.about))
    return "".join(drawn)


def figures_of(stats: RunStats, coverage: Mapping[str, Points]) -> dict[str, Points]:
    """Return the points of every curve by its name; those of `coverage` only where it has them."""
    dev = sorted(stats.evaluations.items())
    return {
        **{
            name: [(iteration, value) for iteration, value in enumerate(values, 1) if value is not None]
            for name, values in stats.curves.items()
        },
        "dev_tgc": [(iteration, found.tgc) for iteration, found in dev],
        "dev_sgc": [(iteration, found.sgc) for iteration, found in dev],
        **coverage,
    }
