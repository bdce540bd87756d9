"""One iteration's rollouts, group by group: their labels, which of them are kept, and summary figures."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.core.advantages.estimators import Flags, Floats, return_std
from tasks.core.advantages.filters import VARIANCE_FILTERS
from tasks.core.advantages.labels import Group, Labels, label
from tasks.core.advantages.outcomes import Outcomes
from tasks.core.config.advantages import AdvantageConfig
from tasks.core.records.training import AdvantageSummary
from tasks.core.seeding import derive_seed


@dataclass(frozen=True)
class AdvantageResult:
    """Labels of N rollouts, and which of them are trained on."""

    labels: Labels
    kept: Flags
    summary: AdvantageSummary


def compute_advantages(outcomes: Outcomes, config: AdvantageConfig, seed: int = 0) -> AdvantageResult:
    """Label every finished rollout within its task's group, then filter. `seed` decides random choices among rollouts.

    Raises ValueError if all rollouts are void.
    """
    rewarded = outcomes.rewarded(config.returns, derive_seed(seed, "returns"))
    every = groups_of(outcomes)
    groups = [group for group in every if len(group) >= config.smallest_group]
    stds = np.array([return_std(rewarded.returns[group]) for group in groups], dtype=np.float64)
    varied = VARIANCE_FILTERS[config.variance_share_of](stds, config.top_variance_share)
    labels, candidate = label(rewarded, groups, config, seed), np.zeros(len(outcomes.returns), dtype=np.bool_)
    for group, chosen in zip(groups, varied, strict=True):
        candidate[group] = chosen
    kept = candidate & labels.carry_signal & outcomes.sampled
    dropped = {
        "dropped_low_variance_group": sum(map(len, groups)) - int(candidate.sum()),
        "dropped_small_advantage": int((candidate & ~labels.carry_signal).sum()),
        "dropped_without_tokens": int((candidate & labels.carry_signal & ~outcomes.sampled).sum()),
        "dropped_lone_rollouts": sum(map(len, every)) - sum(map(len, groups)),
    }
    compared = stds[[len(group) >= 2 for group in groups]]
    return AdvantageResult(labels, kept, summary_of(outcomes, compared, kept, _note(candidate, kept), **dropped))


def groups_of(outcomes: Outcomes) -> list[Group]:
    """Return the finished rollouts of each task, tasks in the order of their first row.

    Raises ValueError if all are void.
    """
    if not outcomes.finished.any():
        raise ValueError(f"nothing to learn from: all {len(outcomes.task_ids)} rollouts are void ({_counts(outcomes)})")
    rows: dict[str, list[int]] = {}
    for row in np.flatnonzero(outcomes.finished):
        rows.setdefault(outcomes.task_ids[int(row)], []).append(int(row))
    return [np.array(members, dtype=np.int64) for members in rows.values()]


def summary_of(outcomes: Outcomes, stds: Floats, kept: Flags, note: str | None, **figures: Any) -> AdvantageSummary:
    """Return advantages.json for N rollouts, `kept` [N] of which are trained on; `stds` are of the groups' returns.

    `figures`: fields of the summary that only some stages know.
    """
    finished = outcomes.finished
    losers = [task for task, end in zip(outcomes.task_ids, outcomes.end_reasons, strict=True) if end == "world_fault"]
    return AdvantageSummary(
        mean_return=float(outcomes.returns[finished].mean()),
        group_return_std=float(stds.mean()) if len(stds) else 0.0,
        rollouts=len(outcomes.returns),
        finished_rollouts=int(finished.sum()),
        kept_rollouts=int(kept.sum()),
        end_reasons=dict(sorted(Counter(outcomes.end_reasons).items())),
        responses=None,
        note=note,
        success_rate=float(outcomes.successes[finished].mean()),
        groups=len(stds),
        mixed_groups=float((stds > 0).mean()) if len(stds) else 0.0,
        left_out_groups=len(set(outcomes.task_ids)) - len(stds),
        lost_rollouts=len(losers),
        shrunk_groups=len(set(losers)),
        **figures,
    )


def _note(candidate: Flags, kept: Flags) -> str | None:
    if kept.any():
        return None
    reason = "no rollout has an advantage over the threshold" if candidate.any() else "the returns of no group vary"
    return f"{reason}: the policy will stay as it is"


def _counts(outcomes: Outcomes) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in sorted(Counter(outcomes.end_reasons).items()))
