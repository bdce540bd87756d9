"""The clipped policy-gradient objective of LOOP and its terms: pure functions on flat tensors of policy tokens.

Shapes: P policy tokens of R rollouts; `rollout_ids` [P] names each token's rollout and rises. An importance unit is
what one importance weight belongs to: a token, an assistant turn, or a whole rollout (LOOP, eq. 6, 7 and 8). Every
token has an advantage. A unit whose weight is the product of its tokens' has the mean of their advantages; one whose
weight is the geometric mean clips for each token by its own advantage (GSPO-token).

Rollouts whose behaviour policy is another than the policy before the update (an older one, or an engine that computes
otherwise) take the decoupled objective of Hilton, Cobbe and Schulman (arXiv 2110.00641; for LLMs: AReaL, arXiv
2505.24298): the clip stays around the policy before the update, so that it bounds the step whatever the staleness, and
each unit is weighted by pi_before / pi_behaviour, truncated (as in IMPALA, arXiv 1802.01561, section 4.1) so that no
single unit outweighs the batch: a bias in exchange for variance. pi_behaviour is as the engine reported it, in AReaL
and in verl alike.
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
    """[P] every token by itself."""
    return torch.arange(len(rollout_ids), device=rollout_ids.device)


def turn_units(rollout_ids: Tensor, turns: Tensor) -> Tensor:
    """[P] one unit per assistant turn of a rollout."""
    return _runs(_changes(rollout_ids) | _changes(turns))


def rollout_units(rollout_ids: Tensor, turns: Tensor) -> Tensor:
    """[P] one unit per rollout."""
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
    """Bounds of the importance weight; the upper one may be looser (clip-higher, DAPO and StarPO-S)."""
    high = config.clip_epsilon if config.clip_epsilon_high is None else config.clip_epsilon_high
    return LOWER_BOUNDS[config.lower_bound](config.clip_epsilon), 1 + high


class ImportanceUnits(NamedTuple):
    """The U units of P policy tokens."""

    ids: Tensor
    """[P] int64 in 0..U-1, the unit of each token, rising."""
    rollout_ids: Tensor
    """[U] int64 in 0..R-1, the rollout of each unit, rising."""


def importance_units(importance: str, rollout_ids: Tensor, turns: Tensor, count: int | None = None) -> ImportanceUnits:
    """Units of tokens with `rollout_ids` [P] and `turns` [P].

    `count` is U where the caller knows it: a GPU need not be waited for to count them.
    """
    ids = UNITS[importance](rollout_ids, turns)
    units = int(ids[-1]) + 1 if count is None else count
    return ImportanceUnits(ids, rollout_ids.new_zeros(units).scatter(0, ids, rollout_ids))


class ClippedObjective(NamedTuple):
    """The clipped objective of U units, to be maximised."""

    values: Tensor
    """[U] min(w A, clip(w) A) of each, or the mean of that over its tokens."""
    clipped: Tensor
    """[] how many units gave no gradient because their weight left the clip range."""


def clipped_objective(
    log_ratios: Tensor,
    units: ImportanceUnits,
    advantages: Tensor,
    config: LossConfig,
    behaviour_log_ratios: Tensor | None = None,
) -> ClippedObjective:
    """log_ratios [P] = log pi - log pi_old, advantages [P]; behaviour_log_ratios [P] = log pi_old - log pi_behaviour.

    With one unit per token this is LOOP's per-token objective, before it is averaged (`averaged`).
    `behaviour_log_ratios` is for rollouts with another behaviour policy than pi_old; None is the same as zeros.
    """
    clipped = CLIPPED[config.unit_weight](log_ratios, units, advantages, config)
    if behaviour_log_ratios is None:
        return clipped
    return clipped._replace(values=clipped.values * behaviour_weights(behaviour_log_ratios, units, config))


def clipped_by_unit(
    log_ratios: Tensor, units: ImportanceUnits, advantages: Tensor, config: LossConfig
) -> ClippedObjective:
    """The weight of a unit is the product of its tokens' ratios, its advantage their mean (LOOP, eq. 6 to 8)."""
    weights, unit_advantages = unit_weights(log_ratios, units, config), mean_by_unit(advantages, units)
    plain = weights * unit_advantages
    bounded = weights.clamp(*clip_range(config)) * unit_advantages
    return ClippedObjective(torch.minimum(plain, bounded), (bounded < plain).sum())


def clipped_by_token(
    log_ratios: Tensor, units: ImportanceUnits, advantages: Tensor, config: LossConfig
) -> ClippedObjective:
    """The weight of a unit is the geometric mean of its tokens' ratios; each token is clipped by its own advantage.

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
    """log_ratios [P] = log pi_old - log pi_behaviour -> [U] min(pi_old / pi_behaviour, cap) of each unit.

    The product over a unit's tokens whatever `unit_weight` is: by it, samples of the one policy have the expectations
    of the other's (verl: `rollout_is: sequence`). A geometric mean would not.
    """
    return _exponential(_sum_by_unit(log_ratios, units)).clamp(max=config.max_behaviour_weight)


def unit_weights(log_ratios: Tensor, units: ImportanceUnits, config: LossConfig) -> Tensor:
    """[P] log-ratios of tokens -> [U] the product of the ratios of each unit's tokens, or their geometric mean.

    The geometric mean over a rollout is GSPO's sequence weight (arXiv 2507.18071, eq. 7).
    """
    sums = _sum_by_unit(log_ratios, units)
    return _exponential(sums / unit_sizes(units, sums) if config.unit_weight == "geometric_mean" else sums)


def _sum_by_unit(values: Tensor, units: ImportanceUnits) -> Tensor:
    """[P] values of tokens -> [U] the sum over each unit's."""
    return values.new_zeros(len(units.rollout_ids)).index_add(0, units.ids, values)


def _exponential(log_weights: Tensor) -> Tensor:
    return log_weights.clamp(max=_MAX_LOG_WEIGHT).exp()


def mean_by_unit(values: Tensor, units: ImportanceUnits) -> Tensor:
    """[P] values of tokens -> [U] the mean over each unit's; exactly their value where they are all equal."""
    last = values.new_zeros(len(units.rollout_ids)).scatter(0, units.ids, values)
    gaps = torch.zeros_like(last).index_add(0, units.ids, values - last[units.ids])
    return last + gaps / unit_sizes(units, values)


def unit_sizes(units: ImportanceUnits, like: Tensor) -> Tensor:
    """[U] the tokens of each unit, in the dtype of `like`."""
    ones = torch.ones_like(units.ids, dtype=like.dtype)
    return ones.new_zeros(len(units.rollout_ids)).index_add(0, units.ids, ones)


def averaged(values: Tensor, units: ImportanceUnits, rollouts: int, config: LossConfig) -> Tensor:
    """[U] values of units -> [R] each rollout's part of the loss, to be added up and divided by `loss_divisor`."""
    if config.average == "rollout":
        return mean_by_rollout(values, units.rollout_ids, rollouts)
    sums = sum_by_rollout(values * unit_sizes(units, values), units.rollout_ids, rollouts)
    return sums / config.constant_tokens if config.average == "constant" else sums


def loss_divisor(config: LossConfig, rollouts: int, policy_tokens: int) -> int:
    """Divisor of a minibatch's sum: the `rollouts` of a whole one, also for a short one, or its `policy_tokens`."""
    return policy_tokens if config.average == "token" else rollouts


def mean_by_rollout(values: Tensor, rollout_ids: Tensor, rollouts: int) -> Tensor:
    """[N] values of tokens or units -> [R] mean over those of each rollout."""
    counts = sum_by_rollout(torch.ones_like(values, requires_grad=False), rollout_ids, rollouts)
    return sum_by_rollout(values, rollout_ids, rollouts) / counts


def sum_by_rollout(values: Tensor, rollout_ids: Tensor, rollouts: int) -> Tensor:
    """[N] values of tokens or units -> [R] sum over those of each rollout."""
    return values.new_zeros(rollouts).index_add(0, rollout_ids, values)


def turn_discounts(turns: ImportanceUnits, rollouts: int, gamma: float) -> Tensor:
    """Return DMPO's weight [P] of each token's turn, number t = 0, 1, ... of the T turns with tokens of its rollout.

    (1 - gamma^(T - t)) / (1 - gamma^T), and at gamma = 1 its limit (T - t) / T (arXiv 2406.14868, eq. 16): 1 for the
    first turn, falling to the last. float32.
    """
    counts = sum_by_rollout(torch.ones_like(turns.rollout_ids), turns.rollout_ids, rollouts)
    firsts = counts.cumsum(0) - counts
    number = torch.arange(len(turns.rollout_ids), device=counts.device) - firsts[turns.rollout_ids]
    total = counts[turns.rollout_ids].double()
    left = total - number
    weights = left / total if gamma == 1 else (1 - gamma**left) / (1 - gamma**total)
    return weights.float()[turns.ids]


def k1(log_ratios: Tensor) -> Tensor:
    """[P] -x: an unbiased estimate of KL(p || q) for x = log q - log p at samples of p, of either sign.

    Source: Schulman, "Approximating KL divergence".
    """
    return -log_ratios


def k3(log_ratios: Tensor) -> Tensor:
    """[P] e^x - 1 - x: an unbiased, never negative estimate of KL(p || q) for x = log q - log p at samples of p.

    Beyond x = 20 it goes on as a straight line: nearer to p is always less. Source: Schulman, "Approximating KL
    divergence"; with p the policy and q the base it is GRPO's KL term (eq. 4). Its gradient, without that of the
    samples' own probability, is that of KL(q || p): see `weighted_by_ratio`.
    """
    beyond = math.exp(_MAX_LOG_WEIGHT) * (log_ratios - _MAX_LOG_WEIGHT).relu()
    return torch.expm1(log_ratios.clamp(max=_MAX_LOG_WEIGHT)) + beyond - log_ratios


def weighted_by_ratio(estimates: Tensor, log_ratios: Tensor) -> Tensor:
    """[P] KL estimates times pi / pi_old, of log_ratios [P] = log pi - log pi_old: the gradient is KL(pi || base)'s.

    The samples are pi_old's. Differentiated as they stand, their k3 terms give the gradient of KL(base || pi), which
    lacks how pi changes what is sampled; the ratio brings it in (TRL: `use_bias_correction_kl`).
    """
    return estimates * _exponential(log_ratios)


KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k3": k3}


def _changes(values: Tensor) -> Tensor:
    """[P] True where a value differs from the one before it."""
    return torch.cat([values.new_zeros(1, dtype=torch.bool), values[1:] != values[:-1]])


def _runs(starts: Tensor) -> Tensor:
    return starts.long().cumsum(0)
