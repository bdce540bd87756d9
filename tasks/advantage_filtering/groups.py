"""One iteration's rollouts, group by group: advantages, what is kept, and the figures that describe it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.advantage_filtering.estimators import ESTIMATORS, Flags, Floats, divided_by_std, return_std
from tasks.advantage_filtering.filters import large_enough, most_varied
from tasks.core.config.advantages import AdvantageConfig
from tasks.core.records.documents import AdvantageSummary
from tasks.core.records.schemas import VOID_REASONS


@dataclass(frozen=True)
class Outcomes:
    """N rollouts as far as the estimators need them, in the order of their table."""

    task_ids: Sequence[str]
    returns: Floats
    successes: Flags
    end_reasons: Sequence[str]

    @property
    def finished(self) -> Flags:
        """[N] True unless the rollout is void (the world broke, or collection stopped before it ended)."""
        return np.array([reason not in VOID_REASONS for reason in self.end_reasons], dtype=np.bool_)


@dataclass(frozen=True)
class AdvantageResult:
    """Advantages of N rollouts and who trains. `advantages` is 0 for rollouts without a group."""

    advantages: Floats
    kept: Flags
    summary: AdvantageSummary


def compute_advantages(outcomes: Outcomes, config: AdvantageConfig) -> AdvantageResult:
    """Estimate every advantage within its task's finished rollouts, then filter. Raises ValueError if all are void."""
    if not outcomes.finished.any():
        raise ValueError(f"nothing to learn from: all {len(outcomes.task_ids)} rollouts are void ({_counts(outcomes)})")
    every = _groups(outcomes)
    groups = [group for group in every if len(group) >= 2]
    stds = np.array([return_std(outcomes.returns[group]) for group in groups], dtype=np.float64)
    varied = most_varied(stds, config.top_variance_share)
    advantages, candidate = np.zeros(len(outcomes.returns)), np.zeros(len(outcomes.returns), dtype=np.bool_)
    for group, chosen in zip(groups, varied, strict=True):
        advantages[group] = _advantages(outcomes, group, config)
        candidate[group] = chosen
    kept = candidate & large_enough(advantages, config.min_absolute_advantage)
    dropped = {
        "dropped_low_variance_group": sum(map(len, groups)) - int(candidate.sum()),
        "dropped_small_advantage": int((candidate & ~kept).sum()),
        "dropped_lone_rollouts": sum(len(group) for group in every if len(group) < 2),
    }
    return AdvantageResult(advantages, kept, _summary(outcomes, stds, kept, dropped))


def _groups(outcomes: Outcomes) -> list[NDArray[np.int64]]:
    """Row numbers of the finished rollouts of each task, tasks in the order of their first row."""
    rows: dict[str, list[int]] = {}
    for row in np.flatnonzero(outcomes.finished):
        rows.setdefault(outcomes.task_ids[int(row)], []).append(int(row))
    return [np.array(members, dtype=np.int64) for members in rows.values()]


def _advantages(outcomes: Outcomes, group: NDArray[np.int64], config: AdvantageConfig) -> Floats:
    returns = outcomes.returns[group]
    advantages = ESTIMATORS[config.estimator](returns, outcomes.successes[group])
    return divided_by_std(advantages, returns, config.divide_by_std) if config.divide_by_std else advantages


def _summary(outcomes: Outcomes, stds: Floats, kept: Flags, dropped: dict[str, int]) -> AdvantageSummary:
    finished = outcomes.finished
    return AdvantageSummary(
        mean_return=float(outcomes.returns[finished].mean()),
        group_return_std=float(stds.mean()) if len(stds) else 0.0,
        rollouts=len(outcomes.returns),
        finished_rollouts=int(finished.sum()),
        kept_rollouts=int(kept.sum()),
        end_reasons=dict(sorted(Counter(outcomes.end_reasons).items())),
        note=None if kept.any() else "no rollout has an advantage over the threshold: the policy will stay as it is",
        success_rate=float(outcomes.successes[finished].mean()),
        groups=len(stds),
        mixed_groups=float((stds > 0).mean()) if len(stds) else 0.0,
        left_out_groups=len(set(outcomes.task_ids)) - len(stds),
        **dropped,
    )


def _counts(outcomes: Outcomes) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in sorted(Counter(outcomes.end_reasons).items()))
