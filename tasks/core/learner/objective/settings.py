"""Settings that the objectives of an update share, and the terms that each makes of a pack."""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from tasks.core.config.update import LossConfig, PreferenceConfig


@dataclass(frozen=True)
class ObjectiveSettings:
    """Fixed for one update, but for the divisor, which is a minibatch's."""

    loss: LossConfig
    temperature: float
    """The one that the rollouts were sampled at."""
    loss_divisor: int
    """Divisor of the loss of a minibatch."""
    logprob_chunk: int
    """Policy tokens whose logits exist at one time."""
    corrects_behaviour: bool = False
    """Whether units are weighted by pi_old / pi_behaviour, truncated."""
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)


class PackTerms(NamedTuple):
    """An objective's terms for a pack."""

    values: Tensor
    """[R] each rollout's part, to be maximised: the loss is minus their sum over the divisor."""
    clipped: Tensor | None
    """[] importance units without a gradient; None where nothing is clipped."""
    units: int
    """Importance units, tokens or pairs: what the objective counts."""
