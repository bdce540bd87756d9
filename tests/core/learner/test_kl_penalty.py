"""What the gradients of the KL penalty are, by enumeration of all rollouts of a tabular policy, in float64."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.core.config.update import LossConfig
from tasks.core.learner.logprobs import TokenLogprobs
from tasks.core.learner.losses import importance_units, sum_from_here
from tasks.core.learner.objective import ObjectiveSettings, clipped_terms
from tasks.core.learner.packing import TrainingPack

VOCABULARY, TOKENS = 3, 3
ROLLOUTS = list(itertools.product(range(VOCABULARY), repeat=TOKENS))
PREFIXES = [prefix for length in range(TOKENS) for prefix in itertools.product(range(VOCABULARY), repeat=length)]
TURNS = [0, 0, 1]


def tables() -> tuple[Tensor, Tensor]:
    """Return the logits [prefixes, vocabulary] of a policy and of its base."""
    generator = torch.Generator().manual_seed(0)
    policy, base = 0.7 * torch.randn(2, len(PREFIXES), VOCABULARY, dtype=torch.float64, generator=generator)
    return policy.requires_grad_(), base


def logprobs(table: Tensor) -> Tensor:
    """Return the log-probs [rollouts, TOKENS] of every rollout there is."""
    rows = torch.log_softmax(table, -1)
    places = [[(PREFIXES.index(rollout[:step]), rollout[step]) for step in range(TOKENS)] for rollout in ROLLOUTS]
    return torch.stack([torch.stack([rows[prefix, token] for prefix, token in row]) for row in places])


def pack_of(old: Tensor, base: Tensor) -> TrainingPack:
    count, empty = len(ROLLOUTS), torch.zeros(0, dtype=torch.long)
    return TrainingPack(
        rows=tuple(range(count)),
        pairs=(),
        lengths=(TOKENS,) * count,
        behind=(-1,) * count,
        sequence_tokens=[TOKENS] * count,
        policy_tokens=[TOKENS] * count,
        turn_count=2 * count,
        input_ids=empty,
        position_ids=empty,
        logit_positions=empty,
        targets=torch.zeros(count * TOKENS, dtype=torch.long),
        rollout_ids=torch.arange(count).repeat_interleave(TOKENS),
        turns=torch.tensor(TURNS).repeat(count),
        advantages=torch.zeros(count * TOKENS, dtype=torch.float64),
        behaviour_logprobs=old.flatten(),
        is_padding=False,
        pieces_by_pass=(count,),
        old_logprobs=old.flatten(),
        reference_logprobs=base.flatten(),
        value_targets=None,
    )


def penalty_gradient(**loss: Any) -> Tensor:
    """Return minus the expectation, over the policy's rollouts, of the gradient of an objective without advantages."""
    policy, base = tables()
    new = logprobs(policy)
    old = new.detach()
    settings = ObjectiveSettings(LossConfig(kl_coefficient=1.0, **loss), 1.0, 1, 1024)
    values = clipped_terms(settings, TokenLogprobs(new.flatten(), None), pack_of(old, logprobs(base))).values
    expected = (old.sum(1).exp() * values).sum()
    return -torch.autograd.grad(expected, policy)[0]


def gradient_by_token(*, forward: bool) -> Tensor:
    """Return the gradient of the sum of the tokens' KL(policy || base), or KL(base || policy), each given its prefix.

    How often a prefix comes counts, but not how the policy changes it.
    """
    policy, base = tables()
    held, total = logprobs(policy).detach().sum(1).exp(), torch.zeros((), dtype=torch.float64)
    for prefix, ours, theirs in zip(PREFIXES, torch.log_softmax(policy, -1), torch.log_softmax(base, -1), strict=True):
        often = sum(p for p, rollout in zip(held, ROLLOUTS, strict=True) if rollout[: len(prefix)] == prefix)
        first, second = (ours, theirs) if forward else (theirs, ours)
        total = total + often * (first.exp() * (first - second)).sum()
    return torch.autograd.grad(total, policy)[0]


def gradient_of_rollouts() -> Tensor:
    """Return the gradient of KL(policy || base) over whole rollouts."""
    policy, base = tables()
    new = logprobs(policy).sum(1)
    return torch.autograd.grad((new.exp() * (new - logprobs(base).sum(1))).sum(), policy)[0]


@pytest.mark.parametrize(
    ("importance", "unit_weight", "parts"),
    [
        ("token", "product", TOKENS),
        ("turn", "product", 2),
        ("trajectory", "product", 1),
        ("trajectory", "geometric_mean", TOKENS),
    ],
)
def test_in_the_returns_it_is_the_gradient_of_whole_rollouts(importance: str, unit_weight: str, parts: int) -> None:
    """A rollout's part of the loss is a mean over `parts`: over its units, or with a geometric mean over its tokens."""
    found = penalty_gradient(kl_gradient="returns", importance=importance, unit_weight=unit_weight)
    torch.testing.assert_close(parts * found, gradient_of_rollouts())


def test_unbiased_is_the_gradient_of_each_token_given_its_prefix() -> None:
    found = TOKENS * penalty_gradient(kl_gradient="unbiased")
    torch.testing.assert_close(found, gradient_by_token(forward=True))
    whole = gradient_of_rollouts()
    assert float((found - whole).abs().max() / whole.abs().max()) > 0.2  # it lacks what a token does to later ones


def test_k3_is_the_gradient_of_the_other_direction() -> None:
    torch.testing.assert_close(TOKENS * penalty_gradient(kl_gradient="k3"), gradient_by_token(forward=False))


def test_sums_from_a_units_first_token_to_its_rollouts_end_by_hand() -> None:
    rollout_ids, turns = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 0, 1])
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    for importance, expected in (
        ("token", [7, 6, 4, 24, 16]),
        ("turn", [7, 7, 4, 24, 16]),
        ("trajectory", [7, 7, 7, 24, 24]),
    ):
        assert sum_from_here(values, importance_units(importance, rollout_ids, turns), 2).tolist() == expected
