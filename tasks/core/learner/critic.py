"""The critic: values of the policy's own hidden states, the credit that they give, its update, and its files.

Credit is generalised advantage estimation (arXiv 1506.02438, eq. 11 to 16) over tokens or turns: pure functions on ONE
rollout of P policy tokens in K turns. `values` [P] are V of the state before each token, `rewards` [K] come at the end
of each turn, and after the last token nothing follows: V is 0 there.

    delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lambda A_{t+1}

With gamma = lambda = 1 that is A_t = (sum of the rewards from t on) - V_t.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW

from tasks.core.config.update import CriticConfig, value_head_widths
from tasks.core.learner.packing import Rollout
from tasks.core.policies.loading import opened, read_tensor
from tasks.core.records.files import ArtifactError, read_json, write_json
from tasks.core.spread import whiten

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Credit(NamedTuple):
    """Advantages and value targets of a rollout's policy tokens."""

    advantages: Floats
    """[P]"""
    targets: Floats
    """[P] what the critic should have predicted: advantage plus value."""


CreditRule = Callable[[Floats, Floats, Integers, CriticConfig], Credit]
"""(rewards [K], values [P], turns [P], config); `turns` names each token's turn and rises."""


def gae(rewards: Floats, values: Floats, gamma: float, trace: float) -> Floats:
    """Return advantages [T] of rewards [T] and values [T]; `trace` is lambda."""
    advantages, following, ahead = np.zeros(len(values)), 0.0, 0.0
    for step in reversed(range(len(values))):
        ahead = rewards[step] + gamma * following - values[step] + gamma * trace * ahead
        following = values[step]
        advantages[step] = ahead
    return advantages


def token_credit(rewards: Floats, values: Floats, turns: Integers, config: CriticConfig) -> Credit:
    """Treat every token as a step; a turn's reward comes with its last token."""
    paid = np.zeros(len(values))
    paid[_ends(turns)] = rewards
    advantages = gae(paid, values, config.gamma, config.gae_lambda)
    return Credit(advantages, advantages + values)


def turn_credit(rewards: Floats, values: Floats, turns: Integers, config: CriticConfig) -> Credit:
    """Treat every turn as a step, with the value before its first token; its tokens share advantage and target."""
    before = values[_starts(turns)]
    advantages = gae(rewards, before, config.turn_gamma, config.gae_lambda)
    turn = _numbers(turns)
    return Credit(advantages[turn], (advantages + before)[turn])


def bilevel_credit(rewards: Floats, values: Floats, turns: Integers, config: CriticConfig) -> Credit:
    """Run GAE over turns first, with `turn_gamma`, then over the tokens inside each turn (RAGEN's bi-level GAE).

    The first pass has one step per turn, with the value before the turn's last token. Its result, advantage plus value,
    is the reward of the turn's last token in the second pass, where every turn ends by itself. A turn is a step even if
    it earns nothing.
    """
    ends = _ends(turns)
    earned = gae(rewards, values[ends], config.turn_gamma, config.gae_lambda) + values[ends]
    advantages = np.zeros(len(values))
    for first, last, reward in zip(_starts(turns), ends, earned, strict=True):
        inside = slice(first, last + 1)
        paid = np.zeros(last + 1 - first)
        paid[-1] = reward
        advantages[inside] = gae(paid, values[inside], config.gamma, config.gae_lambda)
    return Credit(advantages, advantages + values)


CREDIT_RULES: dict[str, CreditRule] = {"token": token_credit, "turn": turn_credit, "bilevel": bilevel_credit}


def rollout_credit(reward: float, values: Floats, turns: Integers, config: CriticConfig) -> Credit:
    """Return the credit of a rollout that earns `reward` at its end, and nothing before."""
    rewards = np.zeros(int(_numbers(turns)[-1]) + 1)
    rewards[-1] = reward
    return CREDIT_RULES[config.credit](rewards, values, turns, config)


def rewarded_credit(turn_rewards: Floats, values: Floats, turns: Integers, config: CriticConfig) -> Credit:
    """Return the credit of a rollout that earns turn_rewards [turns].

    A turn without tokens passes its reward to the last turn with tokens before it.
    """
    played = turns[_starts(turns)]
    earner = np.maximum(np.searchsorted(played, np.arange(len(turn_rewards)), side="right") - 1, 0)
    rewards = np.zeros(len(played))
    np.add.at(rewards, earner, turn_rewards)
    return CREDIT_RULES[config.credit](rewards, values, turns, config)


def whitened(credit: Sequence[Credit]) -> list[Credit]:
    """Whiten the advantages of a batch to mean 0 and variance 1 over all its policy tokens; keep the targets.

    verl's GAE and RAGEN's bi-level GAE end like this. Advantages that are all equal, or a single advantage, become 0.
    """
    whitened_advantages = whiten(np.concatenate([part.advantages for part in credit]))
    parts = np.split(whitened_advantages, np.cumsum([len(part.advantages) for part in credit])[:-1])
    return [Credit(advantages, part.targets) for advantages, part in zip(parts, credit, strict=True)]


def _starts(turns: Integers) -> Integers:
    """Return the index [K] of each turn's first token."""
    return np.flatnonzero(np.concatenate([[True], turns[1:] != turns[:-1]]))


def _ends(turns: Integers) -> Integers:
    """Return the index [K] of each turn's last token."""
    return np.flatnonzero(np.concatenate([turns[1:] != turns[:-1], [True]]))


def _numbers(turns: Integers) -> Integers:
    """Return, for each token [P], its turn's number in 0..K-1 among the turns that have tokens."""
    return np.concatenate([[0], np.cumsum(turns[1:] != turns[:-1])])


FIRST_COEFFICIENT, LAST_COEFFICIENT = 0.1, 0.001
"""Weights of the value loss at first and in the end, as in the LOOP paper. The critic has an optimizer of its own with
a learning rate, which is what one would turn."""
MAX_GRAD_NORM = 1.0
"""Norm to which the critic's gradient is clipped. AdamW divides by the gradient's size: it stops outliers alone."""


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
        return float(FIRST_COEFFICIENT * (LAST_COEFFICIENT / FIRST_COEFFICIENT) ** share)

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
        nn.utils.clip_grad_norm_(self.weights, MAX_GRAD_NORM)
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
