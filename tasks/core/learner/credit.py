"""Values to advantages: generalised advantage estimation (arXiv 1506.02438, eq. 11 to 16) over tokens or turns.

Pure functions on ONE rollout of P policy tokens in K turns. `values` [P] are V of the state before each token,
`rewards` [K] come at the end of each turn, and after the last token nothing follows: V is 0 there.

    delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lambda A_{t+1}

With gamma = lambda = 1 that is A_t = (sum of the rewards from t on) - V_t.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.core.config.update import CriticConfig
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
