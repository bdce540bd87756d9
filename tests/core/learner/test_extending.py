"""The steps of docs/extending.md, taken: a method of each kind is added to its registry and trains.

A name for params.yaml also goes into the `Literal` of its section, which `model_copy` bypasses here.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tasks.core.advantages.estimators import ESTIMATORS, Flags, Floats
from tasks.core.advantages.groups import compute_advantages
from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.update import PAIRED, CriticConfig, UpdateConfig
from tasks.core.learner import objective
from tasks.core.learner.critic import CREDIT_RULES, Credit, Integers, make_critic
from tasks.core.learner.learner import Learner, make_learner, update
from tasks.core.learner.logprobs import TokenLogprobs
from tasks.core.learner.losses import sum_by_rollout
from tasks.core.learner.objective import ObjectiveSettings, PackTerms
from tasks.core.learner.packing import Rollout, TrainingPack
from tests.core.advantages.test_labels import outcomes

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CONFIG = UpdateConfig(minibatch=4, epochs=3, tokens_per_pack=64, learning_rate=1e-2, max_grad_norm=1.0)


def gains(learner: Learner, rollouts: list[Rollout], config: UpdateConfig) -> list[float]:
    """Return by how much an update changes each rollout's log-probability, in nats."""
    before = update(learner, rollouts, config, temperature=1.0, seed=0).old_logprobs
    after = update(learner, rollouts, config, temperature=1.0, seed=0).old_logprobs
    return [float((new - old).sum()) for new, old in zip(after, before, strict=True)]


def test_a_policy_gradient_with_an_advantage_of_its_own(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def median(returns: Floats, successes: Flags) -> Floats:
        return returns - np.median(returns)

    monkeypatch.setitem(ESTIMATORS, "median", median)
    config = AdvantageConfig().model_copy(update={"estimator": "median"})
    found = compute_advantages(outcomes(("t", 1.0, True), ("t", 0.5, False), ("t", 0.0, False)), config)
    assert found.labels.advantages.tolist() == [0.5, 0.0, -0.5] and found.kept.tolist() == [True, False, True]
    rollouts = [replace(made, advantage=found.labels.advantages[2 * row]) for row, made in enumerate(make_rollouts(2))]
    better, worse = gains(make_learner(make_policy(), CONFIG), rollouts, CONFIG)
    assert better > 0 > worse


def test_a_supervised_objective(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlikelihood(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
        """Compute log(1 - pi) of every token: training makes these tokens rarer (arXiv 1908.04319)."""
        values = torch.log1p(-new.logprobs.exp())
        return PackTerms(sum_by_rollout(values, pack.rollout_ids, len(pack.rows)), None, len(values))

    monkeypatch.setitem(objective.OBJECTIVES, "unlikelihood", unlikelihood)
    config = CONFIG.model_copy(update={"objective": "unlikelihood"})
    assert all(gain < 0 for gain in gains(make_learner(make_policy(), config), make_rollouts(8), config))


def test_a_preference_objective(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hinge(settings: ObjectiveSettings, new: TokenLogprobs, pack: TrainingPack) -> PackTerms:
        """Compute min(0, margin - 1) of every pair (SLiC, arXiv 2305.10425), without a reference."""
        sums = sum_by_rollout(new.logprobs, pack.rollout_ids, len(pack.rows))
        better, worse = (torch.tensor(side) for side in zip(*pack.pairs, strict=True))
        margins = sums[better] - sums[worse] - 1
        return PackTerms(torch.zeros_like(sums).index_add(0, better, margins.clamp(max=0)), None, len(pack.pairs))

    monkeypatch.setitem(objective.OBJECTIVES, "hinge", hinge)
    monkeypatch.setattr("tasks.core.learner.packing.PAIRED", PAIRED | {"hinge"})
    config = CONFIG.model_copy(update={"objective": "hinge"})
    drawn = [replace(made, token_ids=made.token_ids[: made.length + 1]) for made in make_rollouts(8)]
    drawn.sort(key=lambda made: -made.length)  # the longer, so rarer, is the better: each pair breaks the rule
    pairs = [replace(made, pair=row % 4, advantage=1.0 if row < 4 else -1.0) for row, made in enumerate(drawn)]
    found = gains(make_learner(make_policy(), config), pairs, config)
    assert sum(found[:4]) > sum(found[4:])
    with pytest.raises(ValueError, match=r"the batch has no pairs; set advantages\.pair_gap"):
        gains(make_learner(make_policy(), config), make_rollouts(4), config)


def test_a_critic_with_credit_of_its_own(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_turn_alone(rewards: Floats, values: Floats, turns: Integers, config: CriticConfig) -> Credit:
        """Give the return's credit to the tokens of the last turn only."""
        advantages = np.where(turns == turns[-1], rewards[-1] - values, 0.0)
        return Credit(advantages, np.full(len(values), rewards[-1]))

    monkeypatch.setitem(CREDIT_RULES, "last_turn", last_turn_alone)
    critic = CriticConfig(warmup_iterations=0).model_copy(update={"credit": "last_turn"})
    config = CONFIG.model_copy(update={"critic": critic})
    learner = make_learner(make_policy(), config)
    learner.critic = make_critic(16, critic, torch.device("cpu"), seed=0)
    rollouts = [replace(made, advantage=1.0) for made in make_rollouts(8)]
    before = update(learner, rollouts, config, temperature=1.0, seed=0).old_logprobs
    after = update(learner, rollouts, config, temperature=1.0, seed=0).old_logprobs
    last = [torch.from_numpy(made.turns == made.turns[-1]) for made in rollouts]
    changes = [(new - old)[place].sum() for new, old, place in zip(after, before, last, strict=True)]
    assert float(sum(changes)) > 0
