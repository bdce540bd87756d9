"""The clipped policy-gradient objective of LOOP and its terms: pure functions on flat tensors of policy tokens.

Shapes: P policy tokens of R rollouts; `rollout_ids` [P] holds each token's rollout, in rising order. An importance unit
is the set of tokens that share one importance weight: a token, an assistant turn, or a whole rollout (LOOP, eq. 6, 7
and 8). Every token has an advantage. A unit whose weight is the product of its tokens' ratios takes the mean of their
advantages; a unit whose weight is the geometric mean clips each token by its own advantage (GSPO-token).

Where the policy before the update did not sample the rollouts (an older policy did, or an engine that computes
otherwise), the objective is the decoupled objective of Hilton, Cobbe and Schulman (arXiv 2110.00641; for LLMs: AReaL,
arXiv 2505.24298). The clip stays around the policy before the update, so that it bounds the step whatever the
staleness. Each unit is weighted by pi_before / pi_behaviour, truncated (as in IMPALA, arXiv 1802.01561, section 4.1) so
that no single unit outweighs the batch: a bias in exchange for variance. pi_behaviour is as the engine reported it, as
in AReaL and in verl.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.core.config.update import LossConfig

# A product over a whole rollout overflows float32 at e^88, and then 0 * inf in the backward pass of the clip is NaN.
_MAX_LOG_WEIGHT = 20.0


def token_units(rollout_ids: Tensor, turns: Tensor) -> Tensor:
    """Return units [P]: every token is a unit."""
    return torch.arange(len(rollout_ids), device=rollout_ids.device)


def turn_units(rollout_ids: Tensor, turns: Tensor) -> Tensor:
    """Return units [P]: every assistant turn of a rollout is a unit."""
    return _runs(_changes(rollout_ids) | _changes(turns))


def rollout_units(rollout_ids: Tensor, turns: Tensor) -> Tensor:
    """Return units [P]: every rollout is a unit."""
    return _runs(_changes(rollout_ids))


UNITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "token": token_units,
    "turn": turn_units,
    "trajectory": rollout_units,
}
LOWER_BOUNDS: dict[str, Callable[[float], float]] = {
    "reciprocal": lambda epsilon: 1 / (1 + epsilon),
    "symmetric": lambda epsilon: 1 - epsilon,
}


def clip_range(config: LossConfig) -> tuple[float, float]:
    """Return the bounds of the importance weight; the upper bound may be looser (clip-higher, DAPO and StarPO-S)."""
    high = config.clip_epsilon if config.clip_epsilon_high is None else config.clip_epsilon_high
    return LOWER_BOUNDS[config.lower_bound](config.clip_epsilon), 1 + high


class ImportanceUnits(NamedTuple):
    """The U units of P policy tokens."""

    ids: Tensor
    """[P] int64 in 0..U-1, the unit of each token, rising."""
    rollout_ids: Tensor
    """[U] int64 in 0..R-1, the rollout of each unit, rising."""


def importance_units(importance: str, rollout_ids: Tensor, turns: Tensor, count: int | None = None) -> ImportanceUnits:
    """Return the units of tokens with `rollout_ids` [P] and `turns` [P].

    `count` is U where the caller knows it, so that nothing waits for a GPU to count the units.
    """
    ids = UNITS[importance](rollout_ids, turns)
    units = int(ids[-1]) + 1 if count is None else count
    return ImportanceUnits(ids, rollout_ids.new_zeros(units).scatter(0, ids, rollout_ids))


class ClippedObjective(NamedTuple):
    """The clipped objective of U units, to be maximised."""

    values: Tensor
    """[U] min(w A, clip(w) A) of each unit, or the mean of that over the unit's tokens."""
    clipped: Tensor
    """[] the number of units that gave no gradient because their weight left the clip range."""


def clipped_objective(
    log_ratios: Tensor,
    units: ImportanceUnits,
    advantages: Tensor,
    config: LossConfig,
    behaviour_log_ratios: Tensor | None = None,
) -> ClippedObjective:
    """Return the clipped objective of log_ratios [P] = log pi - log pi_old and advantages [P].

    With one unit per token this is LOOP's per-token objective, before it is averaged (`averaged`).
    `behaviour_log_ratios` [P] = log pi_old - log pi_behaviour is for rollouts whose behaviour policy is not pi_old;
    None is the same as zeros.
    """
    clipped = CLIPPED[config.unit_weight](log_ratios, units, advantages, config)
    if behaviour_log_ratios is None:
        return clipped
    return clipped._replace(values=clipped.values * behaviour_weights(behaviour_log_ratios, units, config))


def clipped_by_unit(
    log_ratios: Tensor, units: ImportanceUnits, advantages: Tensor, config: LossConfig
) -> ClippedObjective:
    """Clip by unit: its weight is the product of its tokens' ratios, its advantage their mean (LOOP, eq. 6 to 8)."""
    weights, unit_advantages = unit_weights(log_ratios, units, config), mean_by_unit(advantages, units)
    plain = weights * unit_advantages
    bounded = weights.clamp(*clip_range(config)) * unit_advantages
    return ClippedObjective(torch.minimum(plain, bounded), (bounded < plain).sum())


def clipped_by_token(
    log_ratios: Tensor, units: ImportanceUnits, advantages: Tensor, config: LossConfig
) -> ClippedObjective:
    """Clip each token by its own advantage; the weight of a unit is the geometric mean of its tokens' ratios.

    Over rollouts this is GSPO-token (arXiv 2507.18071, eq. 14): a token's weight has the unit's value and the gradient
    of its own log-prob, s = sg[s_unit] pi / sg[pi]. With one advantage for all tokens, value and gradient are GSPO's
    (eq. 5).
    """
    sizes = unit_sizes(units, log_ratios)
    weights = unit_weights(log_ratios.detach(), units, config)[units.ids] * (log_ratios - log_ratios.detach()).exp()
    plain = weights * advantages
    bounded = weights.clamp(*clip_range(config)) * advantages
    values = _sum_by_unit(torch.minimum(plain, bounded), units) / sizes
    left = _sum_by_unit((bounded < plain).to(sizes.dtype), units)
    return ClippedObjective(values, (left == sizes).sum())


CLIPPED: dict[str, Callable[[Tensor, ImportanceUnits, Tensor, LossConfig], ClippedObjective]] = {
    "product": clipped_by_unit,
    "geometric_mean": clipped_by_token,
}


def behaviour_weights(log_ratios: Tensor, units: ImportanceUnits, config: LossConfig) -> Tensor:
    """Return min(pi_old / pi_behaviour, cap) of each unit [U], from log_ratios [P] = log pi_old - log pi_behaviour.

    Uses the product over a unit's tokens whatever `unit_weight` is: weighted by it, samples of one policy have the
    expectations of the other (verl: `rollout_is: sequence`). Weighted by a geometric mean they would not.
    """
    return _exponential(_sum_by_unit(log_ratios, units)).clamp(max=config.max_behaviour_weight)


def unit_weights(log_ratios: Tensor, units: ImportanceUnits, config: LossConfig) -> Tensor:
    """Return for each unit [U] the product of its tokens' ratios, or their geometric mean, from log-ratios [P].

    The geometric mean over a rollout is GSPO's sequence weight (arXiv 2507.18071, eq. 7).
    """
    sums = _sum_by_unit(log_ratios, units)
    return _exponential(sums / unit_sizes(units, sums) if config.unit_weight == "geometric_mean" else sums)


def _sum_by_unit(values: Tensor, units: ImportanceUnits) -> Tensor:
    """Return the sum [U] over each unit of token values [P]."""
    return values.new_zeros(len(units.rollout_ids)).index_add(0, units.ids, values)


def _exponential(log_weights: Tensor) -> Tensor:
    return log_weights.clamp(max=_MAX_LOG_WEIGHT).exp()


def mean_by_unit(values: Tensor, units: ImportanceUnits) -> Tensor:
    """Return the mean [U] over each unit of token values [P]; equal values give exactly this value."""
    last = values.new_zeros(len(units.rollout_ids)).scatter(0, units.ids, values)
    gaps = torch.zeros_like(last).index_add(0, units.ids, values - last[units.ids])
    return last + gaps / unit_sizes(units, values)


def unit_sizes(units: ImportanceUnits, like: Tensor) -> Tensor:
    """Return the number of tokens of each unit [U], in the dtype of `like`."""
    ones = torch.ones_like(units.ids, dtype=like.dtype)
    return ones.new_zeros(len(units.rollout_ids)).index_add(0, units.ids, ones)


def averaged(values: Tensor, units: ImportanceUnits, rollouts: int, config: LossConfig) -> Tensor:
    """Return each rollout's part of the loss [R] from unit values [U].

    The caller sums them and divides by `loss_divisor`.
    """
    if config.average == "rollout":
        return mean_by_rollout(values, units.rollout_ids, rollouts)
    sums = sum_by_rollout(values * unit_sizes(units, values), units.rollout_ids, rollouts)
    return sums / config.constant_tokens if config.average == "constant" else sums


def loss_divisor(config: LossConfig, rollouts: int, policy_tokens: int) -> int:
    """Return the divisor of a minibatch's sum: its `policy_tokens`, or the `rollouts` of a full minibatch."""
    return policy_tokens if config.average == "token" else rollouts


def mean_by_rollout(values: Tensor, rollout_ids: Tensor, rollouts: int) -> Tensor:
    """Return the mean [R] over each rollout of values [N] of tokens or units."""
    counts = sum_by_rollout(torch.ones_like(values, requires_grad=False), rollout_ids, rollouts)
    return sum_by_rollout(values, rollout_ids, rollouts) / counts


def sum_by_rollout(values: Tensor, rollout_ids: Tensor, rollouts: int) -> Tensor:
    """Return the sum [R] over each rollout of values [N] of tokens or units."""
    return values.new_zeros(rollouts).index_add(0, rollout_ids, values)


def sum_from_here(values: Tensor, units: ImportanceUnits, rollouts: int) -> Tensor:
    """Return for each token [P] the sum of token values [P] from the first token of its unit to its rollout's end."""
    by_unit = _sum_by_unit(values, units).double()
    before = by_unit.cumsum(0) - by_unit
    ends = sum_by_rollout(by_unit, units.rollout_ids, rollouts).cumsum(0)
    return (ends[units.rollout_ids] - before).to(values.dtype)[units.ids]


def turn_discounts(turns: ImportanceUnits, rollouts: int, gamma: float) -> Tensor:
    """Return DMPO's weight [P] float32 of each token's turn, number t = 0, 1, ... of its rollout's T turns with tokens.

    The weight is gamma^t (1 - gamma^(T - t)) / (1 - gamma^T), and at gamma = 1 its limit (T - t) / T. It is 1 for the
    first turn and falls to the last. It follows from the paper's premises (arXiv 2406.14868): turn s of a rollout has
    the share gamma^s (1 - gamma) / (1 - gamma^T) of the discounted, length-normalised return, its reward is beta log
    of the two policies' occupancy measures, and those hold the policy's probabilities of turns 0 to s. So turn t
    counts in every share from its own on. Eq. 16 as printed lacks gamma^t; the authors' code has it.
    """
    counts = sum_by_rollout(torch.ones_like(turns.rollout_ids), turns.rollout_ids, rollouts)
    firsts = counts.cumsum(0) - counts
    number = torch.arange(len(turns.rollout_ids), device=counts.device) - firsts[turns.rollout_ids]
    total = counts[turns.rollout_ids].double()
    left = total - number
    weights = left / total if gamma == 1 else gamma**number * (1 - gamma**left) / (1 - gamma**total)
    return weights.float()[turns.ids]


def k1(log_ratios: Tensor) -> Tensor:
    """Return -x [P]: an unbiased estimate, of either sign, of KL(p || q) for x = log q - log p at samples of p.

    Source: Schulman, "Approximating KL divergence".
    """
    return -log_ratios


def k3(log_ratios: Tensor) -> Tensor:
    """Return e^x - 1 - x [P]: an unbiased, never negative estimate of KL(p || q) for x = log q - log p at samples of p.

    Beyond x = 20 it continues as a straight line, so that nearer to p is always less. Source: Schulman, "Approximating
    KL divergence"; with p the policy and q the base it is GRPO's KL term (eq. 4). Its gradient, without that of the
    samples' own probability, is that of a token's KL(q || p): see `weighted_by_ratio`.
    """
    beyond = math.exp(_MAX_LOG_WEIGHT) * (log_ratios - _MAX_LOG_WEIGHT).relu()
    return torch.expm1(log_ratios.clamp(max=_MAX_LOG_WEIGHT)) + beyond - log_ratios


def weighted_by_ratio(estimates: Tensor, log_ratios: Tensor) -> Tensor:
    """Return KL estimates [P] times pi / pi_old, so that their gradient is that of each token's KL(pi || base).

    log_ratios [P] = log pi - log pi_old. pi_old drew the samples. Differentiated as they stand, the k3 terms give the
    gradient of KL(base || pi), which lacks how pi changes the token that is sampled; the ratio adds it (TRL:
    `use_bias_correction_kl`). How the token changes those after it is not in it.
    """
    return estimates * _exponential(log_ratios)


KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k3": k3}


def _changes(values: Tensor) -> Tensor:
    """Return [P] bools, True where a value differs from the value before it."""
    return torch.cat([values.new_zeros(1, dtype=torch.bool), values[1:] != values[:-1]])


def _runs(starts: Tensor) -> Tensor:
    return starts.long().cumsum(0)
