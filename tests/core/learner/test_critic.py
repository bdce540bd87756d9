"""Advantage estimation by hand and by its other formula; the critic's gradient, warm-up and files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from tasks.core.config.update import CriticConfig, UpdateConfig
from tasks.core.learner.checkpoint import save_learner
from tasks.core.learner.critic import (
    CREDIT_RULES,
    MAX_GRAD_NORM,
    Credit,
    Critic,
    ValueHead,
    gae,
    make_critic,
    restore_critic,
    rewarded_credit,
    rollout_credit,
    whitened,
)
from tasks.core.learner.learner import Learner, make_learner, update
from tasks.core.learner.packing import Rollout
from tests.core.learner.test_objective import logprobs

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CPU = torch.device("cpu")
HIDDEN = 16
"""Hidden size of the policy in conftest.py."""
TURNS = np.array([0, 0, 0, 2, 2])
VALUES = np.array([0.5, 0.25, 0.0, 0.75, 0.5])


def credit(reward: float = 1.0, values: Any = VALUES, turns: Any = TURNS, **config: Any) -> Credit:
    return rollout_credit(reward, values, turns, CriticConfig.model_validate(config))


def test_turns_share_what_their_first_token_s_value_leaves() -> None:
    found = credit(credit="turn", turn_gamma=0.5)
    second = 1 - 0.75
    first = 0.5 * 0.75 - 0.5 + 0.5 * second
    assert found.advantages.tolist() == pytest.approx([first] * 3 + [second] * 2)
    assert found.targets.tolist() == pytest.approx([first + 0.5] * 3 + [1.0] * 2)


def test_bilevel_credit_by_hand() -> None:
    """Values before the turns' last tokens are 0 and 0.5; each turn then ends with advantage plus value."""
    found = credit(credit="bilevel", turn_gamma=0.5, gamma=0.9, gae_lambda=1.0)
    second = 1 - 0.5
    first = 0.5 * 0.5 - 0.0 + 0.5 * second
    earned = [first + 0.0, second + 0.5]
    expected = [0.81 * earned[0] - 0.5, 0.9 * earned[0] - 0.25, earned[0] - 0, 0.9 * earned[1] - 0.75, earned[1] - 0.5]
    assert found.advantages.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("lengths", [[1], [2, 3]])
def test_equal_advantages_whiten_to_0(lengths: list[int]) -> None:
    found = whitened([Credit(np.full(length, 0.7), np.ones(length)) for length in lengths])
    assert [part.advantages.tolist() for part in found] == [[0.0] * length for length in lengths]


advantage = st.floats(-10, 10)


@example([[0.0, 1e-9]])
@given(st.lists(st.lists(advantage, min_size=1, max_size=5), min_size=1, max_size=5))
def test_whitening_is_that_of_a_padded_batch_under_a_mask(batch: list[list[float]]) -> None:
    """Compare with verl's formulation: [rollouts, longest] padded with zeros, sums over a mask, Bessel's correction."""
    mask = np.array([[index < len(row) for index in range(5)] for row in batch], dtype=np.float64)
    padded = np.array([row + [0.0] * (5 - len(row)) for row in batch])
    count = mask.sum()
    mean = (padded * mask).sum() / count
    variance = ((padded - mean) ** 2 * mask).sum() / max(count - 1, 1)
    expected = (padded - mean) / np.sqrt(variance + 1e-8) * mask
    values = np.concatenate(batch)
    if np.ptp(values) <= 1e-9 * max(1.0, np.abs(values).max()):  # equal but for rounding: 0 here, some 1e-6 there
        expected = np.zeros_like(expected)
    found = whitened([Credit(np.array(row), np.array(row)) for row in batch])
    assert [part.targets.tolist() for part in found] == batch
    for row, part in zip(expected, found, strict=True):
        assert part.advantages.tolist() == pytest.approx(row[: len(part.advantages)].tolist(), abs=1e-6)


def test_turns_earn_their_rewards_and_a_turn_without_tokens_passes_its_reward_back() -> None:
    found = rewarded_credit(np.array([0.5, 0.25, 1.0]), VALUES, TURNS, CriticConfig())
    assert found.targets.tolist() == pytest.approx([1.75] * 3 + [1.0] * 2)
    early = rewarded_credit(np.array([0.5, 2.0]), VALUES[:2], np.array([1, 1]), CriticConfig())
    assert early.targets.tolist() == pytest.approx([2.5, 2.5])


def test_a_world_without_rewards_is_named(make_rollouts: MakeRollouts) -> None:
    critic = make_critic(HIDDEN, CriticConfig(rewards="turns"), CPU, seed=0)
    rollout = replace(make_rollouts(1)[0], name="rollout 3 of a_task")
    with pytest.raises(ValueError, match="rollout 3 of a_task has no turn rewards"):
        critic.credit(rollout, torch.zeros(len(rollout.turns)))
    rewarded = replace(rollout, turn_rewards=np.full(3, 0.5))
    assert critic.credit(rewarded, torch.zeros(len(rollout.turns))).targets[0] == pytest.approx(1.5)


rollout_values = st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1, max_size=12)
discount = st.floats(0.1, 1)


@given(rollout_values, st.floats(0, 1), st.sampled_from(sorted(CREDIT_RULES)))
def test_with_lambda_1_and_no_discount_an_advantage_is_return_minus_value(
    tokens: list[tuple[int, float]], reward: float, rule: str
) -> None:
    turns, values = np.cumsum([step for step, _ in tokens]), np.array([value for _, value in tokens])
    found = credit(reward, values, turns, credit=rule)
    assert found.targets.tolist() == pytest.approx([reward] * len(tokens))
    if rule != "turn":
        assert found.advantages.tolist() == pytest.approx((reward - values).tolist())


@given(st.lists(st.tuples(st.floats(-1, 2), st.floats(0, 1)), min_size=1, max_size=12), discount, discount)
def test_gae_is_the_discounted_sum_of_errors(steps: list[tuple[float, float]], gamma: float, trace: float) -> None:
    rewards, values = np.array(steps).T
    found, after = gae(rewards, values, gamma, trace), [*values[1:], 0.0]
    errors = [rewards[t] + gamma * after[t] - values[t] for t in range(len(values))]
    for t in range(len(values)):
        expected = sum((gamma * trace) ** (later - t) * errors[later] for later in range(t, len(values)))
        assert found[t] == pytest.approx(expected)


@given(rollout_values, st.floats(0, 1), discount)
def test_one_turn_is_one_episode_of_tokens(tokens: list[tuple[int, float]], reward: float, gamma: float) -> None:
    values, turns = np.array([value for _, value in tokens]), np.full(len(tokens), 3)
    bilevel = credit(reward, values, turns, credit="bilevel", gamma=gamma, gae_lambda=1.0)
    token = credit(reward, values, turns, gamma=gamma, gae_lambda=1.0)
    assert bilevel.advantages.tolist() == pytest.approx(token.advantages.tolist())


def test_the_head_has_the_paper_s_widths_and_trains_no_state() -> None:
    shapes = [tuple(weight.shape) for weight in ValueHead(5120, 0).parameters()]
    assert shapes == [(3072, 5120), (3072,), (2048, 3072), (2048,), (1, 2048), (1,)]
    states = torch.randn(3, HIDDEN, requires_grad=True)
    ValueHead(HIDDEN, 0)(states).sum().backward()
    assert states.grad is None


def test_a_seed_decides_the_head_and_disturbs_no_other_stream() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, same, other = (ValueHead(HIDDEN, seed) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(*pair) for pair in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.layers[0].weight, other.layers[0].weight)


def test_values_are_clipped_for_advantages_and_free_in_the_loss() -> None:
    critic = make_critic(HIDDEN, CriticConfig(), CPU, seed=0)
    with torch.no_grad():
        critic.weights[-1].fill_(3.0)
    states = torch.randn(4, HIDDEN)
    assert critic.values(states).tolist() == [1.0] * 4
    loss = critic.loss(states, torch.zeros(4))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(0.5 * critic.head(states).square().sum().item())
    assert critic.weights[-1].grad is not None and critic.weights[-1].grad.item() > 4


def test_the_loss_coefficient_falls_after_the_warm_up() -> None:
    critic = make_critic(HIDDEN, CriticConfig(warmup_iterations=2, decay_iterations=4), CPU, seed=0)
    found = []
    for critic.updates in range(8):
        found.append(critic.loss_coefficient)
    assert found == pytest.approx([0.1, 0.1, 0.1, 0.1 * 100**-0.25, 0.01, 0.1 * 100**-0.75, 0.001, 0.001])


def settings(**critic: Any) -> UpdateConfig:
    content = {"warmup_iterations": 0, "learning_rate": 1e-2, **critic}
    return UpdateConfig.model_validate(
        {"minibatch": 4, "tokens_per_pack": 64, "learning_rate": 1e-2, "critic": content, "max_grad_norm": 1.0}
    )


def with_returns(rollouts: list[Rollout]) -> list[Rollout]:
    return [replace(rollout, advantage=float(row % 2)) for row, rollout in enumerate(rollouts)]


def learner_with(make_policy: MakePolicy, config: UpdateConfig) -> Learner:
    learner = make_learner(make_policy(), config)
    assert config.critic is not None
    learner.critic = make_critic(HIDDEN, config.critic, CPU, seed=4)
    return learner


def train(learner: Learner, rollouts: list[Rollout], config: UpdateConfig, seed: int = 0) -> list[float]:
    return [step.value_loss for step in update(learner, rollouts, config, temperature=1.0, seed=seed).steps]


def weights(module: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten().clone() for weight in module.parameters()])


@pytest.mark.parametrize("whiten", [False, True])
def test_the_first_step_is_that_of_the_naive_losses(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, whiten: bool
) -> None:
    """Advantages are return minus value, the value loss is half the mean squared error; neither disturbs the other's
    gradient.
    """
    rollouts = with_returns(make_rollouts(6))
    config = settings(whiten_advantages=whiten).model_copy(update={"minibatch": None, "epochs": 1})
    learner = learner_with(make_policy, config)
    critic = learner.critic
    assert critic is not None
    naive_head, policy = ValueHead(HIDDEN, 4).double(), make_policy().double()
    stats = update(learner, rollouts, config, temperature=1.0, seed=0).steps[0]

    policy_loss, errors, advantages = torch.zeros((), dtype=torch.float64), [], []
    for rollout in rollouts:
        model = policy.get_base_model().base_model
        states = model(input_ids=torch.from_numpy(rollout.token_ids)[None]).last_hidden_state[0].detach()
        values = naive_head.layers(states[torch.from_numpy(rollout.policy_positions) - 1])[:, 0]
        errors.append(values - rollout.advantage)
        advantages.append(rollout.advantage - values.detach().clamp(0, 1))
    mean, std = (torch.cat(advantages).mean(), torch.cat(advantages).std()) if whiten else (0.0, 1.0)
    for rollout, given_to in zip(rollouts, advantages, strict=True):
        policy_loss -= ((given_to - mean) / std * logprobs(policy, rollout)).mean() / len(rollouts)
    value_loss = 0.5 * torch.cat(errors).square().mean()
    (policy_loss + 0.1 * value_loss).backward()
    assert stats.value_loss == pytest.approx(value_loss.item(), rel=1e-5)
    for found, expected in ((learner.policy, policy), (critic.head, naive_head)):
        ours, theirs = (
            torch.cat([weight.grad.double().flatten() for weight in module.parameters() if weight.grad is not None])
            for module in (found, expected)
        )
        limit = config.max_grad_norm if found is learner.policy else MAX_GRAD_NORM
        clipped = theirs * min(1.0, limit / float(theirs.norm()))
        assert (ours - clipped).norm() < 1e-5 * clipped.norm()


def test_a_critic_learns_the_returns(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    config = settings(warmup_iterations=99)
    learner, rollouts = learner_with(make_policy, config), with_returns(make_rollouts(8))
    losses = [float(np.mean(train(learner, rollouts, config, seed))) for seed in range(12)]
    assert losses[-1] < 0.5 * losses[0]


def test_the_critic_warms_up_alone(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    config = settings(warmup_iterations=1)
    learner, rollouts = learner_with(make_policy, config), with_returns(make_rollouts(6))
    critic = learner.critic
    assert critic is not None
    before = weights(learner.policy), weights(critic.head)
    stats = update(learner, rollouts, config, temperature=1.0, seed=0)
    assert torch.equal(weights(learner.policy), before[0]) and not torch.equal(weights(critic.head), before[1])
    assert (learner.optimizer_steps, stats.optimizer_steps, critic.optimizer_steps, critic.updates) == (0, 0, 4, 1)
    stats = update(learner, rollouts, config, temperature=1.0, seed=0)
    assert not torch.equal(weights(learner.policy), before[0])
    assert (learner.optimizer_steps, stats.optimizer_steps, critic.optimizer_steps, critic.updates) == (4, 4, 8, 2)


def test_a_critic_of_another_policy_is_refused(make_policy: MakePolicy, tmp_path: Path) -> None:
    config = settings()
    save_learner(learner_with(make_policy, config), tmp_path / "policy")
    wider: Critic = make_critic(2 * HIDDEN, CriticConfig(), CPU, seed=0)
    with pytest.raises(
        ValueError, match=r"critic\.safetensors: the critic does not fit the policy: tensor layers\.0\.w"
    ):
        restore_critic(wider, tmp_path / "policy")
