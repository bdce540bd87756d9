"""The objectives of an update, by their names in `update.objective`: pure functions on a pack.

Each returns every rollout's part of the sum to maximise; `Objective` does the pass before it and the sum after it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tasks.core.config.update import LossConfig, PreferenceConfig
from tasks.core.learner.logprobs import TokenLogprobs
from tasks.core.learner.losses import (
    ImportanceUnits,
    averaged,
    clipped_objective,
    importance_units,
    k3,
    sum_by_rollout,
    turn_discounts,
    weighted_by_ratio,
)
from tasks.core.learner.packing import Pack, TrainingPack


@dataclass(frozen=True)
class ObjectiveSettings:
    """Settings that are fixed for one update, except the divisor, which is fixed for a minibatch."""

    loss: LossConfig
    temperature: float
    """The sampling temperature of the rollouts."""
    loss_divisor: int
    """Divisor of the loss of a minibatch."""
    logprob_chunk: int
    """Policy tokens whose logits are in memory at one time."""
    corrects_behaviour: bool = False
    """Whether units are weighted by pi_old / pi_behaviour, truncated."""
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)


class PackTerms(NamedTuple):
    """An objective's terms for a pack."""

    values: Tensor
    """[R] each rollout's part of the sum to maximise: the loss is minus their sum over the divisor."""
    clipped: Tensor | None
    """[] importance units without a gradient; None where nothing is clipped."""
    units: int
    """The things that the objective counts: importance units, tokens or pairs."""


Terms = Callable[[ObjectiveSettings, TokenLogprobs, TrainingPack], PackTerms]


def clipped_terms(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
    """Compute the clipped policy gradient (LOOP, eq. 6 to 8), minus a KL term, plus an entropy bonus."""
    units = _units(settings.loss.importance, pack)
    behaviour = pack.old_logprobs - pack.behaviour_logprobs if settings.corrects_behaviour else None
    log_ratios = new.logprobs - pack.old_logprobs
    clipped = clipped_objective(log_ratios, units, pack.advantages, settings.loss, behaviour)
    values = averaged(clipped.values, units, len(pack.rows), settings.loss)
    return PackTerms(_regularised(values, settings, new, pack), clipped.clipped, len(units.rollout_ids))


def supervised_terms(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
    """Compute A log pi without importance weights: minus the cross-entropy where each kept rollout's advantage is 1.

    The estimator `success` gives such advantages: supervised training on rollouts that succeeded.
    """
    values = averaged(new.logprobs * pack.advantages, _units("token", pack), len(pack.rows), settings.loss)
    return PackTerms(_regularised(values, settings, new, pack), None, len(pack.targets))


def preference_terms(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
    """Compute direct preference optimisation over whole rollouts: for each pair

        log sigmoid(beta (log pi(better) / ref(better) - log pi(worse) / ref(worse)))

    with sums over policy tokens, each times the weight of its turn (DMPO, arXiv 2406.14868, eq. 16), or 1 (DPO, arXiv
    2305.18290, eq. 7). A pair's term counts twice, because the divisor counts rollouts: `update.minibatch` rollouts are
    half as many pairs.
    """
    reference = pack.old_logprobs if pack.reference_logprobs is None else pack.reference_logprobs
    log_ratios, gamma = new.logprobs - reference, settings.preference.gamma
    if gamma is not None:
        log_ratios = log_ratios * turn_discounts(_units("turn", pack), len(pack.rows), gamma)
    gains = sum_by_rollout(log_ratios, pack.rollout_ids, len(pack.rows))
    better, worse = (torch.tensor(side, device=gains.device) for side in zip(*pack.pairs, strict=True))
    margins = settings.preference.beta * (gains[better] - gains[worse])
    values = gains.new_zeros(len(pack.rows)).index_add(0, better, 2 * logsigmoid(margins))
    return PackTerms(values, None, len(pack.pairs))


OBJECTIVES: dict[str, Terms] = {
    "clipped": clipped_terms,
    "supervised": supervised_terms,
    "preference": preference_terms,
}


def _regularised(values: Tensor, settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> Tensor:
    """Return values [R] minus the KL term, plus the entropy bonus, averaged as `update.loss.average` says."""
    loss, count = settings.loss, len(pack.rows)
    if pack.reference_logprobs is not None:
        kl = k3(pack.reference_logprobs - new.logprobs)
        if loss.kl_gradient == "unbiased":
            kl = weighted_by_ratio(kl, new.logprobs - pack.old_logprobs)
        values = values - loss.kl_coefficient * averaged(kl, _units("token", pack), count, loss)
    if new.entropies is not None:
        values = values + loss.entropy_coefficient * averaged(new.entropies, _units("token", pack), count, loss)
    return values


def _units(importance: str, pack: Pack) -> ImportanceUnits:
    counts = {"token": len(pack.targets), "turn": pack.turn_count, "trajectory": len(pack.rows)}
    return importance_units(importance, pack.rollout_ids, pack.turns, counts[importance])
