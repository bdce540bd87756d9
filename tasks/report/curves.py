"""The charts of the report: which figures each has, and what they mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.core.pages.charts import Points, line_chart
from tasks.report.run_stats import RunStats


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
        **{name: _points(values) for name, values in stats.curves.items()},
        "dev_tgc": [(iteration, found.tgc) for iteration, found in dev],
        "dev_sgc": [(iteration, found.sgc) for iteration, found in dev],
        **coverage,
    }


def _points(series: Sequence[float | None]) -> Points:
    return [(iteration, value) for iteration, value in enumerate(series, 1) if value is not None]
