"""The clipped policy-gradient objective of LOOP and its terms: pure functions on flat tensors of policy tokens.

Shapes: P policy tokens of R rollouts; `rollout_ids` [P] names each token's rollout and rises. An importance unit is
what one importance weight belongs to: a token, an assistant turn, or a whole rollout (LOOP, eq. 6, 7 and 8). Every
token has an advantage; that of a unit is the mean over its tokens.

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
    """[U] min(w A, clip(w) A) of each."""
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
    weights, unit_advantages = unit_weights(log_ratios, units, config), mean_by_unit(advantages, units)
    plain = weights * unit_advantages
    bounded = weights.clamp(*clip_range(config)) * unit_advantages
    values = torch.minimum(plain, bounded)
    if behaviour_log_ratios is not None:
        values = values * behaviour_weights(behaviour_log_ratios, units, config)
    return ClippedObjective(values, (bounded < plain).sum())


def behaviour_weights(log_ratios: Tensor, units: ImportanceUnits, config: LossConfig) -> Tensor:
    """log_ratios [P] = log pi_old - log pi_behaviour -> [U] min(pi_old / pi_behaviour, cap) of each unit."""
    return unit_weights(log_ratios, units, config).clamp(max=config.max_behaviour_weight)


def unit_weights(log_ratios: Tensor, units: ImportanceUnits, config: LossConfig) -> Tensor:
    """[P] log-ratios of tokens -> [U] the product of the ratios of each unit's tokens, or their geometric mean.

    The geometric mean over a rollout is GSPO's sequence weight (arXiv 2507.18071, eq. 7).
    """
    sums = log_ratios.new_zeros(len(units.rollout_ids)).index_add(0, units.ids, log_ratios)
    if config.unit_weight == "geometric_mean":
        sums = sums / unit_sizes(units, sums)
    return sums.clamp(max=_MAX_LOG_WEIGHT).exp()


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
    divergence"; with p the policy and q the base it is GRPO's KL term (eq. 4).
    """
    beyond = math.exp(_MAX_LOG_WEIGHT) * (log_ratios - _MAX_LOG_WEIGHT).relu()
    return torch.expm1(log_ratios.clamp(max=_MAX_LOG_WEIGHT)) + beyond - log_ratios


KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k3": k3}


def _changes(values: Tensor) -> Tensor:
    """[P] True where a value differs from the one before it."""
    return torch.cat([values.new_zeros(1, dtype=torch.bool), values[1:] != values[:-1]])


def _runs(starts: Tensor) -> Tensor:
    return starts.long().cumsum(0)
