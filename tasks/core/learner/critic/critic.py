"""A learned critic: its head, its optimizer, and how far it has come. Every rank holds the whole of it.

It has an optimizer of its own, so that the policy's is what it is without one. Its loss's coefficient acts through the
norm at which its gradient is clipped: under that norm, AdamW's steps do not depend on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from tasks.core.config.update import CriticConfig
from tasks.core.learner.critic.credit import Credit, rewarded_credit, rollout_credit, whitened
from tasks.core.learner.critic.value_head import ValueHead
from tasks.core.learner.rollouts import Rollout


@dataclass
class Critic:
    """A value head in training, and how many updates and optimizer steps it has made."""

    head: ValueHead
    optimizer: AdamW
    config: CriticConfig
    updates: int = 0
    optimizer_steps: int = 0

    @property
    def weights(self) -> list[nn.Parameter]:
        """Those that its optimizer steps."""
        return list(self.head.parameters())

    @property
    def is_warming_up(self) -> bool:
        """Whether it still trains alone: the policy does not step."""
        return self.updates < self.config.warmup_iterations

    @property
    def loss_coefficient(self) -> float:
        """Falls by equal factors from the first to the last value over `decay_iterations` after the warm-up."""
        config = self.config
        share = min(1.0, max(0, self.updates - config.warmup_iterations) / config.decay_iterations)
        return float(config.loss_coefficient * (config.final_loss_coefficient / config.loss_coefficient) ** share)

    def values(self, states: Tensor) -> Tensor:
        """states [P, d] -> [P] values for estimates, within `value_range`."""
        values: Tensor = self.head(states)
        return values if self.config.value_range is None else values.clamp(*self.config.value_range)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """[] half the sum of squared errors against targets [P], of values that are not clipped: those can return."""
        errors: Tensor = self.head(states) - targets
        return 0.5 * errors.square().sum()

    def credit(self, rollout: Rollout, values: Tensor) -> Credit:
        """Advantages and targets of a rollout whose advantage so far is its return (`estimator: episode_return`).

        Raises ValueError where turns are to be rewarded and the world gave nothing for them.
        """
        found, config = values.cpu().numpy().astype(np.float64), self.config
        if config.rewards == "return":
            return rollout_credit(rollout.advantage, found, rollout.turns, config)
        if rollout.turn_rewards is None:
            raise ValueError(f"update.critic.rewards: turns: {rollout.name}: this world gives none; set it to return")
        return rewarded_credit(rollout.turn_rewards, found, rollout.turns, config)

    def batch_credit(self, rollouts: Sequence[Rollout], values: Sequence[Tensor]) -> list[Credit]:
        """Credit of each rollout of a batch, `values` [P] of each. Raises ValueError as `credit` does."""
        found = [self.credit(*pair) for pair in zip(rollouts, values, strict=True)]
        return whitened(found) if self.config.whiten_advantages else found

    def step(self) -> None:
        """One optimizer step with the gradients that are there, clipped."""
        nn.utils.clip_grad_norm_(self.weights, self.config.max_grad_norm)
        self.optimizer.step()
        self.optimizer_steps += 1


def make_critic(hidden_size: int, config: CriticConfig, device: torch.device, seed: int) -> Critic:
    """An untrained critic for states of this size."""
    head = ValueHead(hidden_size, seed).to(device)
    return Critic(head, AdamW(head.parameters(), lr=config.learning_rate, weight_decay=0.0), config)
