"""Advantages, losses, KL and GAE compared with the functions of `trl` and `verl`, on random ragged inputs, in float64.

A difference of convention shows here when they or we change. Where conventions differ on purpose, the tests' settings
adapt to it: verl's dual clip is off, clips are symmetric.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.core.advantages.groups import compute_advantages
from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.update import CriticConfig, LossConfig, PreferenceConfig
from tasks.core.learner.critic import rewarded_credit, whitened
from tasks.core.learner.logprobs import TokenLogprobs
from tasks.core.learner.losses import behaviour_weights, importance_units, k1, k3
from tasks.core.learner.objective import ObjectiveSettings, Terms, clipped_terms, preference_terms
from tasks.core.learner.packing import TrainingPack
from tests.core.advantages.test_labels import outcomes
from tests.peers.interpreter import ask_peers

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1500)]
Array = NDArray[np.float64]
Answers = dict[str, Any]
CASES = 40
BETA = 0.3
CONSTANT = 9


class Case(NamedTuple):
    """A case of R = 2 n rollouts, padded to T positions."""

    mask: NDArray[np.bool_]
    """[R, T] mask of the policy's tokens."""
    turns: NDArray[np.int64]
    """[R, T]"""
    groups: NDArray[np.int64]
    """[R]"""
    returns: Array
    """[R]"""
    arrays: dict[str, Array]
    """[R, T] each: new, old, reference, values, advantages, turn_advantages, turn_rewards."""

    def flat(self, name: str) -> Tensor:
        """Return the policy's tokens of an array [P]."""
        return torch.from_numpy(self.arrays[name][self.mask])


def drawn(seed: int) -> Case:
    random = np.random.default_rng(seed)
    count, width = 2 * int(random.integers(2, 5)), 16
    mask, turns = np.zeros((count, width), dtype=bool), np.zeros((count, width), dtype=np.int64)
    rewards = np.zeros((count, width))
    for row in range(count):
        place = 0
        for turn in range(int(random.integers(1, 4))):
            length = int(random.integers(1, 4))
            mask[row, place : place + length], turns[row, place : place + length] = True, turn
            rewards[row, place + length - 1] = random.normal()
            place += length + int(random.integers(1, 3))
    old = random.normal(-2, 0.7, (count, width))
    by_turn = np.take_along_axis(random.normal(size=(count, 3)), turns, 1)
    arrays = {
        "old": old,
        "new": old + random.normal(0, 0.25, (count, width)),
        "reference": old + random.normal(0, 0.5, (count, width)),
        "values": random.normal(size=(count, width)),
        "advantages": np.repeat(random.normal(size=(count, 1)), width, 1),
        "turn_advantages": by_turn,
        "turn_rewards": rewards,
    }
    groups = np.sort(np.concatenate([[0, 0], random.integers(0, 2, count - 4), [1, 1]]))
    return Case(mask, turns, groups, random.integers(0, 5, count) / 4, arrays)


def as_json(case: Case) -> dict[str, Any]:
    lists = {name: values.tolist() for name, values in case.arrays.items()}
    rest = {"mask": case.mask.astype(float).tolist(), "groups": case.groups.tolist(), "returns": case.returns.tolist()}
    return {**lists, **rest, "constant": CONSTANT}


@pytest.fixture(scope="module")
def cases() -> list[tuple[Case, Answers]]:
    found = [drawn(seed) for seed in range(CASES)]
    return list(zip(found, ask_peers([as_json(case) for case in found]), strict=True))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("verl group_mean", {"estimator": "group_mean"}),
        ("verl group_mean by std", {"estimator": "group_mean", "divide_by_std": "sample"}),
        ("verl leave_one_out", {"estimator": "leave_one_out"}),
        ("verl normalise_over_batch", {"estimator": "episode_return", "normalise_over_batch": True}),
    ],
)
def test_advantages(cases: list[tuple[Case, Answers]], name: str, config: dict[str, Any]) -> None:
    for case, answers in cases:
        rows = [(str(group), share, share == 1) for group, share in zip(case.groups, case.returns, strict=True)]
        found = outcomes(*rows, tokens=case.mask.sum(1).tolist())
        ours = compute_advantages(found, AdvantageConfig.model_validate(config)).labels.advantages
        theirs = np.array(answers[name])
        assert np.where(case.mask, ours[:, None], theirs) == pytest.approx(theirs, abs=1e-7)


def test_generalised_advantage_estimation(cases: list[tuple[Case, Answers]]) -> None:
    config = CriticConfig(gamma=0.97, gae_lambda=0.9, rewards="turns", value_range=None)
    for case, answers in cases:
        credit = []
        for row, own in enumerate(case.mask):
            rewards, values = case.arrays["turn_rewards"][row], case.arrays["values"][row][own]
            turns = case.turns[row][own]
            by_turn = np.array([rewards[own & (case.turns[row] == turn)].sum() for turn in range(turns[-1] + 1)])
            credit.append(rewarded_credit(by_turn, values, turns, config))
        targets = np.concatenate([part.targets for part in credit])
        assert targets == pytest.approx(np.array(answers["verl gae targets"])[case.mask])
        advantages = np.concatenate([part.advantages for part in whitened(credit)])
        assert advantages == pytest.approx(np.array(answers["verl gae"])[case.mask])


def test_estimates_of_the_kl(cases: list[tuple[Case, Answers]]) -> None:
    for case, answers in cases:
        log_ratios = case.flat("reference") - case.flat("new")
        for name, estimate in (("verl k1", k1), ("verl k3", k3)):
            theirs = np.array(answers[name])[case.mask]
            assert estimate(log_ratios).numpy() == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(("name", "importance"), [("token", "token"), ("sequence", "trajectory")])
def test_weights_of_the_behaviour_policy(cases: list[tuple[Case, Answers]], name: str, importance: str) -> None:
    """Here the reference policy sampled the rollouts; GSPO's own weight does not influence this weight."""
    config = LossConfig.model_validate({"unit_weight": "geometric_mean", "max_behaviour_weight": 2.0})
    for case, answers in cases:
        pack = pack_of(case, "advantages")
        units = importance_units(importance, pack.rollout_ids, pack.turns)
        weights = behaviour_weights(case.flat("old") - case.flat("reference"), units, config)
        theirs = np.array(answers[f"verl rollout_is {name}"])[case.mask]
        assert weights[units.ids].numpy() == pytest.approx(theirs)


LOSSES: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{peer} token {average}": ({"average": average}, "advantages")
        for peer in ("verl", "trl")
        for average in ("rollout", "token", "constant")
    },
    **{
        f"{peer} gspo {average}": (
            {"average": average, "importance": "trajectory", "unit_weight": "geometric_mean"},
            "advantages",
        )
        for peer in ("verl", "trl")
        for average in ("rollout", "token", "constant")
    },
    "verl gspo turns": ({"importance": "trajectory", "unit_weight": "geometric_mean"}, "turn_advantages"),
    "trl kl k3": ({"kl_coefficient": BETA}, "advantages"),
    "trl kl unbiased": ({"kl_coefficient": BETA, "kl_gradient": "unbiased"}, "advantages"),
}
"""Settings of the loss, and the advantages, of each of the peers' losses."""


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(cases: list[tuple[Case, Answers]], name: str) -> None:
    terms, advantages = LOSSES[name]
    clip = {"clip_epsilon": 0.2, "clip_epsilon_high": 0.28, "lower_bound": "symmetric", "constant_tokens": CONSTANT}
    loss = LossConfig.model_validate({**clip, **terms})
    for case, answers in cases:
        divisor = int(case.mask.sum()) if loss.average == "token" else len(case.mask)
        compare(case, answers[name], clipped_terms, ObjectiveSettings(loss, 1.0, divisor, 1024), advantages)


def test_dpo(cases: list[tuple[Case, Answers]]) -> None:
    preference = PreferenceConfig(beta=BETA)
    for case, answers in cases:
        settings = ObjectiveSettings(LossConfig(), 1.0, len(case.mask), 1024, preference=preference)
        compare(case, answers["trl dpo"], preference_terms, settings, "advantages")


def compare(case: Case, theirs: Answers, terms: Terms, settings: ObjectiveSettings, advantages: str) -> None:
    new = case.flat("new").requires_grad_()
    found = terms(settings, TokenLogprobs(new, None, None), pack_of(case, advantages))
    value = -found.values.sum() / settings.loss_divisor
    (gradient,) = torch.autograd.grad(value, new)
    assert value.item() == pytest.approx(theirs["value"], rel=1e-6, abs=1e-7)  # verl adds 1e-8 to its divisors
    assert gradient.numpy() == pytest.approx(np.array(theirs["gradient"])[case.mask], rel=1e-6, abs=1e-9)


def pack_of(case: Case, advantages: str) -> TrainingPack:
    """Return all rollouts of the case; the first half are better than the second."""
    rollouts, half = len(case.mask), len(case.mask) // 2
    turns = [row[policy_mask] for row, policy_mask in zip(case.turns, case.mask, strict=True)]
    empty = torch.zeros(0, dtype=torch.long)
    return TrainingPack(
        rows=tuple(range(rollouts)),
        pairs=tuple((row, row + half) for row in range(half)),
        lengths=(case.mask.shape[1],) * rollouts,
        behind=(-1,) * rollouts,
        sequence_tokens=case.mask.sum(1).tolist(),
        policy_tokens=case.mask.sum(1).tolist(),
        turn_count=sum(int(turns_of_tokens[-1]) + 1 for turns_of_tokens in turns),
        input_ids=empty,
        position_ids=empty,
        logit_positions=empty,
        targets=torch.zeros(int(case.mask.sum()), dtype=torch.long),
        rollout_ids=torch.from_numpy(np.repeat(np.arange(rollouts), case.mask.sum(1))),
        turns=torch.from_numpy(np.concatenate(turns)),
        advantages=case.flat(advantages),
        behaviour_logprobs=case.flat("old"),
        is_padding=False,
        pieces_by_pass=(rollouts,),
        old_logprobs=case.flat("old"),
        reference_logprobs=case.flat("reference"),
        value_targets=None,
    )
