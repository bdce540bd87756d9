"""Early signs that training collapses, from the figures of each iteration. Pure.

RAGEN (arXiv 2504.20073, section 4.1): the mean return shows a collapse late. The spread of returns within groups and
the entropy fall before it, and a spike of the gradient norm marks the point of no return.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

Series = Sequence[float | None]
"""One value per iteration; None where the iteration has none."""


@dataclass(frozen=True)
class CollapseThresholds:
    """When a figure is a warning."""

    start: int = 3
    """The reference is the mean of the first so many values."""
    std_share: float = 0.5
    """In-group return std under this share of its start."""
    entropy_share: float = 0.3
    """Entropy under this share of its start."""
    entropy_growth: float = 3.0
    """Entropy over so many times its start."""
    dev_fall: float = 10.0
    """TGC on dev so many points under the best before it."""
    patience: int = 2
    """For so many values in a row."""
    solved_return: float = 0.9
    """At this mean return a small std is what success looks like, and no warning."""
    spike: float = 4.0
    """Gradient norm over so many times the median of the values before it."""
    spike_history: int = 5
    """Number of values before it that the median needs, and takes."""
    mismatch_share: float = 0.01
    """Share of policy tokens whose engine and learner log-probs differ by more than rounding explains."""


@dataclass(frozen=True)
class CollapseSign:
    """A warning, seen first at iteration `iteration` (1-based)."""

    iteration: int
    message: str


def collapse_warnings(curves: Mapping[str, Series], limits: CollapseThresholds) -> list[CollapseSign]:
    """The first occurrence of each sign, by iteration.

    `curves` holds one series per figure, iteration 1 first; `dev_tgc` in percent, None where it was not measured.
    """
    stds, returns = curves["group_return_std"], curves["mean_return"]
    unsolved = [s if r is None or r < limits.solved_return else None for s, r in zip(stds, returns, strict=True)]
    found = [
        _fall(unsolved, stds, limits.std_share, "the spread of returns within groups", limits),
        _fall(curves["entropy"], curves["entropy"], limits.entropy_share, "the entropy", limits),
        _growth(curves["entropy"], limits),
        _spike(curves["grad_norm"], limits),
        _lost_skill(curves["dev_tgc"], limits),
        _mismatch(curves["mismatch_share"], limits),
    ]
    return sorted((warning for warning in found if warning), key=lambda warning: warning.iteration)


def _fall(
    values: Series, reference: Series, share: float, name: str, limits: CollapseThresholds
) -> CollapseSign | None:
    """The first of `patience` values in a row that are under `share` of the start of `reference`."""
    known = [value for value in reference if value is not None][: limits.start]
    if len(known) < limits.start:
        return None
    start, run = fmean(known), 0
    for iteration, value in enumerate(values, 1):
        run = run + 1 if value is not None and value < share * start else 0
        if run == limits.patience:
            message = f"{name} fell under {share:.0%} of its start ({start:.3g}) and stayed there"
            return CollapseSign(iteration - run + 1, message)
    return None


def _growth(values: Series, limits: CollapseThresholds) -> CollapseSign | None:
    """The entropy's other way to go wrong: a policy that drifts towards noise."""
    known = [value for value in values if value is not None][: limits.start]
    if len(known) < limits.start:
        return None
    start, run = fmean(known), 0
    for iteration, value in enumerate(values, 1):
        run = run + 1 if value is not None and value > limits.entropy_growth * start else 0
        if run == limits.patience:
            message = f"the entropy rose over {limits.entropy_growth:g} times its start ({start:.3g}) and stayed there"
            return CollapseSign(iteration - run + 1, message)
    return None


def _lost_skill(values: Series, limits: CollapseThresholds) -> CollapseSign | None:
    """The first of `patience` evaluations in a row that are `dev_fall` points or more under the best before them."""
    best, low = 0.0, list[int]()
    for iteration, value in enumerate(values, 1):
        if value is None:
            continue
        low = [*low, iteration] if value <= best - limits.dev_fall else []
        if len(low) == limits.patience:
            message = f"TGC on dev fell {limits.dev_fall:g} points or more under its best ({best:.1f}) and stayed there"
            return CollapseSign(low[0], message)
        best = max(best, value)
    return None


def _spike(values: Series, limits: CollapseThresholds) -> CollapseSign | None:
    """The first value over `spike` times the median of the `spike_history` known values before it."""
    before: list[float] = []
    for iteration, value in enumerate(values, 1):
        if value is None:
            continue
        recent = before[-limits.spike_history :]
        if len(recent) == limits.spike_history and value > limits.spike * median(recent):
            return CollapseSign(
                iteration,
                f"the gradient norm jumped to {value:.3g}, {value / median(recent):.1f} times its recent median",
            )
        before.append(value)
    return None


def _mismatch(shares: Series, limits: CollapseThresholds) -> CollapseSign | None:
    for iteration, share in enumerate(shares, 1):
        if share is not None and share > limits.mismatch_share:
            return CollapseSign(
                iteration,
                f"engine and learner disagree by more than rounding explains on {share:.1%} of the policy tokens",
            )
    return None
