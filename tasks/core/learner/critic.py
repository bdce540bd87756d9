"""The critic: values of the policy's own hidden states, its update, and its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW

from tasks.core.capacity.flops import value_head_widths
from tasks.core.config.update import CriticConfig
from tasks.core.learner.credit import Credit, rewarded_credit, rollout_credit, whitened
from tasks.core.learner.rollouts import Rollout
from tasks.core.policies.loading import opened, read_tensor
from tasks.core.records.files import ArtifactError, read_json, write_json


class ValueHead(nn.Module):
    """A map from states [P, d] to values [P] float32: three linear layers with ReLU between (LOOP, PPO baseline)."""

    def __init__(self, hidden_size: int, seed: int) -> None:
        """Make the layers. `seed` alone decides their initial weights."""
        super().__init__()
        wide, narrow = value_head_widths(hidden_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Linear(hidden_size, wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU(), nn.Linear(narrow, 1)
            )

    def forward(self, states: Tensor) -> Tensor:
        """Return values [P], computed in float32 whatever the states' dtype. No gradient reaches the states."""
        values: Tensor = self.layers(states.detach().float())[:, 0]
        return values


@dataclass
class Critic:
    """A value head in training, with its number of updates and optimizer steps."""

    head: ValueHead
    optimizer: AdamW
    config: CriticConfig
    updates: int = 0
    optimizer_steps: int = 0

    @property
    def weights(self) -> list[nn.Parameter]:
        """Return the weights that the critic's optimizer steps."""
        return list(self.head.parameters())

    @property
    def is_warming_up(self) -> bool:
        """Return whether the critic still trains alone, while the policy makes no step."""
        return self.updates < self.config.warmup_iterations

    @property
    def loss_coefficient(self) -> float:
        """Return the coefficient of the value loss.

        It falls by equal factors from the first to the last value over `decay_iterations` after the warm-up.
        """
        config = self.config
        share = min(1.0, max(0, self.updates - config.warmup_iterations) / config.decay_iterations)
        return float(config.loss_coefficient * (config.final_loss_coefficient / config.loss_coefficient) ** share)

    def values(self, states: Tensor) -> Tensor:
        """Return values [P] of states [P, d] for advantage estimates, clipped to `value_range`."""
        values: Tensor = self.head(states)
        return values if self.config.value_range is None else values.clamp(*self.config.value_range)

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return half the sum [] of squared errors against targets [P].

        The values are not clipped here: a clipped value would have no gradient that leads it back into the range.
        """
        errors: Tensor = self.head(states) - targets
        return 0.5 * errors.square().sum()

    def credit(self, rollout: Rollout, values: Tensor) -> Credit:
        """Return the credit of a rollout whose advantage so far is its return (`estimator: episode_return`).

        Raises ValueError where turns are to be rewarded and the world gave no turn rewards.
        """
        values_array, config = values.cpu().numpy().astype(np.float64), self.config
        if config.rewards == "return":
            return rollout_credit(rollout.advantage, values_array, rollout.turns, config)
        if rollout.turn_rewards is None:
            raise ValueError(f"update.critic.rewards: turns: {rollout.name} has no turn rewards; set it to return")
        return rewarded_credit(rollout.turn_rewards, values_array, rollout.turns, config)

    def batch_credit(self, rollouts: Sequence[Rollout], values: Sequence[Tensor]) -> list[Credit]:
        """Return the credit of each rollout of a batch; `values` holds [P] for each.

        Raises ValueError as `credit` does.
        """
        credits = [self.credit(*pair) for pair in zip(rollouts, values, strict=True)]
        return whitened(credits) if self.config.whiten_advantages else credits

    def step(self) -> None:
        """Make one optimizer step with the present gradients, clipped."""
        nn.utils.clip_grad_norm_(self.weights, self.config.max_grad_norm)
        self.optimizer.step()
        self.optimizer_steps += 1


def make_critic(hidden_size: int, config: CriticConfig, device: torch.device, seed: int) -> Critic:
    """Return an untrained critic for states of size `hidden_size`."""
    head = ValueHead(hidden_size, seed).to(device)
    return Critic(head, AdamW(head.parameters(), lr=config.learning_rate, weight_decay=0.0), config)


TENSORS, COUNTS = "critic.safetensors", "critic.json"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def save_critic(critic: Critic, folder: Path) -> None:
    """Write the critic into a checkpoint's folder. Same state, same bytes."""
    tensors = {}
    for name, weight in critic.head.named_parameters():
        state = critic.optimizer.state[weight]
        tensors[name] = weight.detach()
        for moment in _MOMENTS:
            tensors[f"{name}.{moment}"] = state.get(moment, torch.zeros_like(weight))
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(whole, folder / TENSORS, metadata={"format": "pt"})
    write_json(folder / COUNTS, {"updates": critic.updates, "optimizer_steps": critic.optimizer_steps})


def restore_critic(critic: Critic, folder: Path) -> None:
    """Load the state of `folder` into `critic`; a folder without such state leaves it untrained.

    Raises ArtifactError when the files are damaged and ValueError, naming the tensor, when they do not fit the policy.
    """
    if not (folder / COUNTS).exists():
        return
    path, counts = folder / TENSORS, read_json(folder / COUNTS)
    if not {"updates", "optimizer_steps"} <= counts.keys():
        raise ArtifactError(f"{folder / COUNTS}: no updates or no optimizer_steps; run `dvc repro`")
    with opened(path) as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        for name, weight in critic.head.named_parameters():
            state = {"step": torch.tensor(float(counts["optimizer_steps"]), device=weight.device)}
            for key in (name, *(f"{name}.{moment}" for moment in _MOMENTS)):
                if shapes.get(key) != list(weight.shape):
                    raise ValueError(
                        f"{path}: the critic does not fit the policy: tensor {key} is {shapes.get(key)}, "
                        f"not {list(weight.shape)}; another base model made it"
                    )
                state[key.removeprefix(f"{name}.")] = read_tensor(file, key, weight)
            with torch.no_grad():
                weight.copy_(state.pop(name))
            critic.optimizer.state[weight] = state
    critic.updates, critic.optimizer_steps = counts["updates"], counts["optimizer_steps"]
