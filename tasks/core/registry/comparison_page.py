"""A comparison of versions as Markdown, for a terminal and for a file. Pure."""

from collections.abc import Sequence

from tasks.core.pages.tables import markdown_table
from tasks.core.records.comparison import ALL_LEVELS, ComparedVersion, Comparison, Difference
from tasks.core.records.scores import Behaviour

DRAWN = (
    "Paired by task; interval and p are of these two policies on another draw of tasks of this kind, not of other "
    "training seeds. p is of each row alone: with many rows, some are small by chance."
)


def comparison_page(comparison: Comparison) -> str:
    """Return the whole page."""
    scored = "scored anew" if comparison.rescored else "scores as stored with the versions"
    sections = [
        [f"# {comparison.registered_model}: versions {_names(comparison.versions)}", "", f"{scored}."],
        _scored_differently(comparison),
        _versions(comparison.versions),
        _scores(comparison.versions),
        _runs_scores(comparison.versions),
        _own_scores(comparison.versions),
        _differences(comparison),
        _behaviour(comparison.versions),
        _params(comparison),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _scored_differently(comparison: Comparison) -> list[str]:
    if not (names := comparison.scored_differently):
        return []
    note = f"**The versions were scored differently ({', '.join(names)}): their scores do not compare.**"
    return [f"{note} `--rescore` scores all with the same settings."]


def _names(versions: Sequence[ComparedVersion]) -> str:
    return ", ".join(str(version.version) for version in versions)


def _versions(versions: Sequence[ComparedVersion]) -> list[str]:
    rows = [
        (
            str(version.version),
            ", ".join(version.aliases) or "-",
            version.iteration,
            version.adapter_digest[:12],
            version.params_digest[:12],
            (version.git_commit[:12] or "unknown") + (" (changed)" if version.git_dirty else ""),
        )
        for version in versions
    ]
    return [markdown_table(("version", "aliases", "iteration", "adapter", "params", "commit"), rows)]


def _scores(versions: Sequence[ComparedVersion]) -> list[str]:
    """Return one row per split and difficulty, one column per version."""
    columns = dict.fromkeys((split, level) for v in versions for split in v.splits for level in v.splits[split].levels)
    rows = [(*_place(*column), *(_score(version, *column) for version in versions)) for column in columns]
    head = ("split", "difficulty", *(f"{version.version}: TGC / SGC" for version in versions))
    return ["## Scores (percent, +- standard error)", "", markdown_table(head, rows)]


def _score(version: ComparedVersion, split: str, level: str) -> str:
    score = version.splits[split].levels.get(level) if split in version.splits else None
    if score is None:
        return "-"
    return f"{score.tgc:.1f}{_error(score.tgc_se)} / {score.sgc:.1f}{_error(score.sgc_se)}"


def _runs_scores(versions: Sequence[ComparedVersion]) -> list[str]:
    """Return one row per split and k > 1, one column per version."""
    found = {
        (split, int(k), v.version): f"{score.pass_hat:.1f}{_error(score.pass_hat_se)} / {score.best_of:.1f}"
        for v in versions
        for split, s in v.splits.items()
        for k, score in s.per_k.items()
        if k != "1"
    }
    places = dict.fromkeys((split, k) for split, k, _ in found)
    rows = [(split, str(k), *(found.get((split, k, v.version), "-") for v in versions)) for split, k in places]
    head = ("split", "k", *(f"{v.version}: pass^k / best@k" for v in versions))
    return ["## Several runs of a task (percent)", "", markdown_table(head, rows)] if rows else []


def _own_scores(versions: Sequence[ComparedVersion]) -> list[str]:
    """Return one row per split and metric of the world's own, one column per version."""
    metric_scores = {(split, v.version): s.own for v in versions for split, s in v.splits.items() if s.own is not None}
    metrics = dict.fromkeys((split, score.name) for (split, _), score in metric_scores.items())
    cells = {key: f"{score.value:.2f}{_error(score.value_se)}" for key, score in metric_scores.items()}
    rows = [
        (split, name, *(cells.get((split, version.version), "-") for version in versions)) for split, name in metrics
    ]
    head = ("split", "metric", *(str(version.version) for version in versions))
    return ["## The world's own metric (mean of the episodes)", "", markdown_table(head, rows)] if rows else []


def _error(value: float | None) -> str:
    return "" if value is None else f" +-{value:.1f}"


def _differences(comparison: Comparison) -> list[str]:
    if not comparison.differences:
        return []
    rows = [
        (
            f"{difference.second} - {difference.first}",
            *_place(difference.split, difference.level),
            difference.metric.upper(),
            *_test(difference),
        )
        for difference in comparison.differences
    ]
    interval = f"{100 * comparison.confidence:g}% interval"
    head = ("versions", "split", "difficulty", "metric", "difference", interval, "p", "pairs", "scenarios")
    return ["## Differences (points)", "", DRAWN, "", markdown_table(head, rows)]


def _test(difference: Difference) -> tuple[str, ...]:
    interval = (
        "-" if difference.low is None or difference.high is None else f"{difference.low:+.1f} to {difference.high:+.1f}"
    )
    p_value = "-" if difference.p_value is None else f"{difference.p_value:.2g}"
    return f"{difference.difference:+.1f}", interval, p_value, str(difference.pairs), str(difference.scenarios)


def _behaviour(versions: Sequence[ComparedVersion]) -> list[str]:
    measured = [
        (split, str(version.version), scores.behaviour)
        for version in versions
        for split, scores in version.splits.items()
        if scores.behaviour is not None
    ]
    if not measured:
        return []
    rows = [
        (name.replace("_", " "), *(_figure(getattr(behaviour, name)) for _, _, behaviour in measured))
        for name in Behaviour.model_fields
    ]
    head = ("", *(f"{version}: {split}" for split, version, _ in measured))
    return ["## Behaviour", "", markdown_table(head, rows)]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _params(comparison: Comparison) -> list[str]:
    if not comparison.params:
        return ["## Parameters", "", "The same in all."]
    numbers = [str(version.version) for version in comparison.versions]
    rows = [(name, *(str(values[number]) for number in numbers)) for name, values in comparison.params.items()]
    return ["## Parameters that differ", "", markdown_table(("", *numbers), rows)]


def _place(split: str, level: str) -> tuple[str, str]:
    return split, "all" if level == ALL_LEVELS else level
