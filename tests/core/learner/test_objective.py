"""Every objective and average against a naive float64 formulation."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import backward, make_learner, update
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.losses import importance_units, mean_by_unit, turn_discounts
from tasks.core.learner.model import use_packed_attention
from tasks.core.learner.objective import Objective, read_stats
from tasks.core.learner.packing import Rollout, bundles, pack_rollouts
from tests.core.learner.test_gradients import gradients, nudge, relative_difference

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
Naive = Callable[[list[Tensor], list[Tensor], list[Tensor], list[Rollout]], Tensor]
"""Maps log-probs [P] of each rollout (new, old, of the base) to the loss."""
CPU = torch.device("cpu")


def settings(**content: Any) -> UpdateConfig:
    return UpdateConfig.model_validate({"minibatch": 8, "tokens_per_pack": 40, "logprob_chunk": 7, **content})


def compare(make_policy: MakePolicy, rollouts: list[Rollout], config: UpdateConfig, naive: Naive) -> float:
    """Assert that loss and gradient of a policy some steps on equal the naive formulation's; return the loss."""
    policy, base = make_policy(), make_policy("full", shaken=False)
    use_packed_attention(policy)
    use_packed_attention(base)
    packs = pack_rollouts(rollouts, range(len(rollouts)), config.tokens_per_pack, CPU)
    assert len(packs) > 1
    objective = Objective.of(config, len(rollouts), 1.0).of_minibatch(rollouts)
    fixed = compute_fixed_logprobs(policy, packs, rollouts, objective, lambda: nullcontext(base))
    nudge(policy)
    stats = read_stats(backward(policy, fixed.attach(packs), objective), torch.zeros(()), SINGLE)

    exact = make_policy().double()
    exact.load_state_dict(policy.state_dict())
    with torch.no_grad():
        exact_old, exact_base = make_policy().double(), make_policy("full", shaken=False).double()
        before = [logprobs(exact_old, rollout) for rollout in rollouts]
        reference = [logprobs(exact_base, rollout) for rollout in rollouts]
    expected = naive([logprobs(exact, rollout) for rollout in rollouts], before, reference, rollouts)
    expected.backward()  # type: ignore[no-untyped-call]
    assert stats.loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    assert relative_difference(gradients(policy), gradients(exact)) < 1e-5
    return stats.loss


def logprobs(policy: nn.Module, rollout: Rollout) -> Tensor:
    """Return log-probs [P] float64 of one pass over the whole rollout with transformers' own attention."""
    logits = policy(input_ids=torch.from_numpy(rollout.token_ids)[None]).logits[0]
    rows = torch.log_softmax(logits[torch.from_numpy(rollout.policy_positions) - 1], -1)
    return rows.gather(1, torch.from_numpy(rollout.token_ids[rollout.policy_positions])[:, None])[:, 0]


def with_turn_advantages(rollouts: list[Rollout]) -> list[Rollout]:
    random = np.random.default_rng(3)
    return [replace(rollout, turn_advantages=random.normal(size=4)) for rollout in rollouts]


def paired(rollouts: list[Rollout]) -> list[Rollout]:
    """Pair rows 0 and 3, 1 and 4, 2 and 5; the second row of each pair is better."""
    return [
        replace(rollout, pair=row % 3, advantage=1.0 if row > 2 else -1.0) for row, rollout in enumerate(rollouts[:6])
    ]


def clipped(weight: Tensor, advantage: float) -> Tensor:
    return torch.minimum(weight * advantage, weight.clamp(1 / 1.1, 1.1) * advantage)


@pytest.mark.parametrize("average", ["rollout", "token", "constant"])
@pytest.mark.parametrize("importance", ["token", "turn", "trajectory"])
@pytest.mark.parametrize("unit_weight", ["product", "geometric_mean"])
def test_averages_units_and_turn_advantages_are_the_naive_ones(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, average: str, importance: str, unit_weight: str
) -> None:
    terms = {"average": average, "constant_tokens": 9, "importance": importance, "unit_weight": unit_weight}

    def naive(new: list[Tensor], old: list[Tensor], base: list[Tensor], rollouts: list[Rollout]) -> Tensor:
        parts, tokens = [], sum(len(rollout.turns) for rollout in rollouts)
        for now, before, rollout in zip(new, old, rollouts, strict=True):
            names = {"token": range(len(now)), "turn": rollout.turns, "trajectory": [0] * len(now)}[importance]
            values, sizes = [], []
            for name in sorted(set(map(int, names))):
                inside = [index for index, found in enumerate(names) if found == name]
                ratios = [(now[index] - before[index]).exp() for index in inside]
                weight = math.prod(ratios, start=torch.ones((), dtype=torch.float64))
                weight = weight ** (1 / len(inside)) if unit_weight == "geometric_mean" else weight
                assert rollout.turn_advantages is not None
                advantages = [rollout.turn_advantages[rollout.turns[index]] for index in inside]
                if unit_weight == "geometric_mean":  # GSPO-token, eq. 14
                    weights_of_tokens = [weight.detach() * (now[index] - now[index].detach()).exp() for index in inside]
                    values.append(torch.stack(list(map(clipped, weights_of_tokens, advantages))).mean())
                else:
                    values.append(clipped(weight, float(np.mean(advantages))))
                sizes.append(len(inside))
            whole = sum(value * size for value, size in zip(values, sizes, strict=True))
            parts.append(
                {"rollout": sum(values) / len(values) / 8, "token": whole / tokens, "constant": whole / 9 / 8}[average]
            )
        return -sum(parts)  # type: ignore[return-value]

    compare(make_policy, with_turn_advantages(make_rollouts(8)), settings(loss=terms), naive)


def test_the_unbiased_kl_penalty_is_the_naive_one(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    def naive(new: list[Tensor], old: list[Tensor], base: list[Tensor], rollouts: list[Rollout]) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for now, before, reference, rollout in zip(new, old, base, rollouts, strict=True):
            penalty = ((reference - now).exp() - 1 - (reference - now)) * (now - before).exp()
            total += torch.stack([clipped(ratio, rollout.advantage) for ratio in (now - before).exp()]).mean()
            total -= 0.3 * penalty.mean()
        return -total / 8

    loss = {"kl_coefficient": 0.3, "kl_gradient": "unbiased"}
    compare(make_policy, make_rollouts(6), settings(loss=loss), naive)


@pytest.mark.parametrize("average", ["rollout", "token"])
def test_the_supervised_loss_is_the_naive_one(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, average: str
) -> None:
    def naive(new: list[Tensor], old: list[Tensor], base: list[Tensor], rollouts: list[Rollout]) -> Tensor:
        weighted = [rollout.advantage * now for now, rollout in zip(new, rollouts, strict=True)]
        if average == "token":
            return -torch.cat(weighted).mean()
        return -sum(one.mean() for one in weighted) / 8  # type: ignore[return-value]

    config = settings(objective="supervised", loss={"average": average})
    compare(make_policy, make_rollouts(6), config, naive)


def phi(turn: int, turns: int, gamma: float | None) -> float:
    """Return how much a turn's log-ratio counts in DMPO's preference (arXiv 2406.14868), and 1 for DPO.

    The rewards' weights are gamma^s over their sum, and a turn's log-ratio is part of the log of every later state's
    occupancy measure: so it counts with the weights of all turns s >= t.
    """
    if gamma is None:
        return 1.0
    weights = [gamma**later for later in range(turns)]
    return sum(weights[turn:]) / sum(weights)


@pytest.mark.parametrize("gamma", [None, 0.7, 1.0])
@pytest.mark.parametrize("reference", ["iteration", "base"])
def test_the_preference_loss_is_the_naive_one(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, reference: str, gamma: float | None
) -> None:
    def naive(new: list[Tensor], old: list[Tensor], base: list[Tensor], rollouts: list[Rollout]) -> Tensor:
        from_what = {"iteration": old, "base": base}[reference]
        gains = []
        for now, other, rollout in zip(new, from_what, rollouts, strict=True):
            turns = int(rollout.turns.max()) + 1
            gains.append(sum(phi(t, turns, gamma) * gain for t, gain in zip(rollout.turns, now - other, strict=True)))
        losses = [-torch.log(1 / (1 + torch.exp(-0.3 * (gains[row + 3] - gains[row])))) for row in range(3)]
        return sum(losses) / 4  # type: ignore[return-value]

    config = settings(objective="preference", preference={"beta": 0.3, "reference": reference, "gamma": gamma})
    compare(make_policy, paired(make_rollouts(6)), config, naive)


@pytest.mark.parametrize(
    ("gamma", "weights"), [(1.0, [1, 1, 2 / 3, 1 / 3, 1, 0.5, 1, 1]), (0.5, [1, 1, 3 / 7, 1 / 7, 1, 1 / 3, 1, 1])]
)
def test_turn_discounts_by_hand(gamma: float, weights: list[float]) -> None:
    """Of turns 0, 1, 2, of 4 and 7, and of 3 alone, as searched trees have it: turns without tokens do not count."""
    rollout_ids, turns = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 1, 2, 4, 7, 3, 3])
    found = turn_discounts(importance_units("turn", rollout_ids, turns), 3, gamma)
    assert found.tolist() == pytest.approx(weights)


def test_a_pair_is_in_one_minibatch_and_one_pack(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    rollouts = paired(make_rollouts(6))
    assert bundles(rollouts, range(6)) == [(3, 0), (4, 1), (5, 2)]
    assert bundles(rollouts, [5, 1, 2, 4]) == [(5, 2), (4, 1)]
    for pack in pack_rollouts(rollouts, range(6), 1, CPU):
        assert pack.pairs == ((0, 1),) and pack.rows[0] == pack.rows[1] + 3
    config = UpdateConfig(objective="preference", minibatch=3, epochs=1, tokens_per_pack=64)
    stats = update(make_learner(make_policy(), config), rollouts, config, temperature=1.0, seed=0)
    assert [step.rollouts for step in stats.steps] == [2, 2, 2]


@given(st.floats(-1e3, 1e3, width=32), st.integers(1, 50))
def test_the_mean_of_equal_values_is_exactly_that_value(value: float, count: int) -> None:
    zeros = torch.zeros(count, dtype=torch.long)
    mean = mean_by_unit(torch.full((count,), value), importance_units("trajectory", zeros, zeros))
    assert mean.tolist() == [value]
