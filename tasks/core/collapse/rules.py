"""Rules that warn before training collapses: pure functions from the figures of all iterations so far to warnings.

RAGEN (arXiv 2504.20073, section 4.1): the mean return shows a collapse late; the spread of returns within groups and
the entropy fall before it, and a spike of the gradient norm marks the point of no return. RAGEN-2 (arXiv 2604.06268)
adds the mutual information of prompts and responses. The limits are data, thresholds.json;
tests/benchmarks/collapse_thresholds.py fits them on recorded runs and counts on others.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from pydantic import Field

from tasks.core.config.dag import iteration_key, iteration_number
from tasks.core.config.section import Section
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.training import CollapseWarning, Metrics, WatchedStats, watched

START = 2
"""Number of first values whose mean is the reference: before an update, and after the first."""
RECENT = 5
"""Number of previous values, at most, whose median a spike is compared with."""
History = Sequence[WatchedStats]


class TrainingStopped(ValueError):  # noqa: N818 - says what happened to the run
    """The collapse monitor stopped the training; everything trained until then is kept."""


class Rule(Section):
    """A rule: a figure and its limit."""

    name: str
    figure: str
    kind: Literal["fall", "rise", "spike", "over"]
    """fall: under `factor` times its start. rise: over `factor` times its start. spike: over `factor` times the median
    of the values before. over: over `factor` itself.
    """
    factor: float = Field(gt=0)
    solved_at: float | None = None
    """Mean return from which on the figure may fall, because success looks like that."""


class Thresholds(Section):
    """The content of thresholds.json: the rules, and the source of their limits."""

    fitted_on: str
    command: str
    commit: str
    recorded_runs: str
    """SHA-256 of recorded_runs.csv, in hexadecimal."""
    judged: tuple[str, ...]
    """Rules whose limit is a judgement, because the recorded runs required no further limit."""
    rules: tuple[Rule, ...]


@cache
def collapse_rules() -> tuple[Rule, ...]:
    """Return the rules with the limits of thresholds.json."""
    path = Path(__file__).with_name("thresholds.json")
    return Thresholds.model_validate_json(path.read_text(encoding="utf-8")).rules


def warnings_of(history: History, rules: Sequence[Rule]) -> list[CollapseWarning]:
    """Return the warnings of all iterations, the first iteration's first."""
    return [w for count in range(1, len(history) + 1) for w in new_warnings(history[:count], rules)]


def new_warnings(history: History, rules: Sequence[Rule]) -> list[CollapseWarning]:
    """Return warnings for rules that the last iteration of `history` breaks and the iteration before did not."""
    return [
        CollapseWarning(rule=rule.name, iteration=len(history), evidence=evidence)
        for rule in rules
        if (evidence := broken(rule, history)) and not broken(rule, history[:-1])
    ]


def broken(rule: Rule, history: History) -> str | None:
    """Return evidence that the last iteration of `history` breaks the rule; None where it does not."""
    if not history:
        return None
    *before, now = history
    value, limit = getattr(now, rule.figure), limit_of(rule, before)
    if value is None or limit is None or (rule.solved_at is not None and now.mean_return >= rule.solved_at):
        return None
    if not (value < limit if rule.kind == "fall" else value > limit):
        return None
    compared = {
        "fall": f", under {rule.factor:.3g} times its start",
        "rise": f", over {rule.factor:.3g} times its start",
        "spike": f", over {rule.factor:.3g} times its recent median",
        "over": "",
    }
    return f"{rule.figure} is {value:.3g} (limit {limit:.3g}{compared[rule.kind]})"


def limit_of(rule: Rule, before: History) -> float | None:
    """Return the figure's limit in the iteration that follows `before`; None while there is too little to compare."""
    if rule.kind == "over":
        return rule.factor
    known = [value for figures in before if (value := getattr(figures, rule.figure)) is not None]
    if not known:
        return None
    level = median(known[-RECENT:]) if rule.kind == "spike" else fmean(known[:START])
    return rule.factor * level if level > 0 else None


def read_warnings(layout: Layout, key: str) -> list[CollapseWarning]:
    """Return the warnings of a collapse in all iterations up to `key`, in their order.

    Raises ArtifactError when metrics.json of one of them is missing or damaged.
    """
    return warnings_of(read_history(layout, key), collapse_rules())


def require_no_warning(layout: Layout, key: str) -> None:
    """Raise TrainingStopped where an iteration up to `key` has a warning. Raises ArtifactError."""
    for found in read_warnings(layout, key)[:1]:
        raise TrainingStopped(
            f"training stopped after {key} (monitor.action: stop): iteration {found.iteration}: {found.rule}: "
            f"{found.evidence}. To score what was trained: loopline configure --refresh --set "
            f"iterations={iteration_number(key)}; to continue, set monitor.action to none"
        )


def read_new_warnings(layout: Layout, key: str) -> list[CollapseWarning]:
    """Return the warnings of iteration `key` alone. Raises ArtifactError."""
    return new_warnings(read_history(layout, key), collapse_rules())


def read_history(layout: Layout, key: str) -> list[WatchedStats]:
    """Return the figures that rules look at, of the iterations up to `key`, the first iteration first.

    Raises ArtifactError.
    """
    keys = map(iteration_key, range(1, iteration_number(key) + 1))
    return [watched(read_document(layout.metrics(each), Metrics)) for each in keys]
