import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tasks.core.config.update import CriticConfig, KlStop, UpdateConfig
from tasks.core.learner.checkpoint import restore_optimizer, save_learner
from tasks.core.learner.critic import make_critic, restore_critic
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import Learner, UpdateDiverged, learning_rate, make_learner, optimizer_step, update
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.losses import k1
from tasks.core.learner.objective import Objective, PackStats, read_stats
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.policies.loading import load_weights, trained_tensors
from tasks.core.records.files import ArtifactError, digest

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CONFIG = UpdateConfig(minibatch=4, tokens_per_pack=64, learning_rate=1e-2)


def train(learner: Learner, rollouts: list[Rollout], seed: int = 0, config: UpdateConfig = CONFIG) -> list[float]:
    return [step.loss for step in update(learner, rollouts, config, temperature=1.0, seed=seed).steps]


@pytest.mark.parametrize("kind", ["adapter", "critic", "bfloat16"])
def test_a_resumed_learner_writes_the_bytes_of_an_uninterrupted_one(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, tmp_path: Path, kind: str
) -> None:
    """A critic warms up meanwhile; steps of all weights are smaller than bfloat16 can hold."""
    critic = CriticConfig(warmup_iterations=1, learning_rate=1e-2) if kind == "critic" else None
    rate, made = (3e-6, ("full", "bfloat16")) if kind == "bfloat16" else (1e-2, ())
    config = CONFIG.model_copy(update={"critic": critic, "learning_rate": rate})

    def learner_on(checkpoint: Path | None) -> Learner:
        policy = make_policy(*made)
        if checkpoint is not None:
            load_weights(policy, checkpoint)
        learner = make_learner(policy, config)
        learner.critic = critic and make_critic(16, critic, torch.device("cpu"), seed=4 if checkpoint is None else 99)
        if checkpoint is not None:
            restore_optimizer(learner, checkpoint)
            if learner.critic is not None:
                restore_critic(learner.critic, checkpoint)
        return learner

    first, second, learner = make_rollouts(10, 1), make_rollouts(10, 2), learner_on(None)
    train(learner, first, 1, config)
    save_learner(learner, tmp_path / "half")
    train(learner, second, 2, config)
    save_learner(learner, tmp_path / "whole")
    resumed = learner_on(tmp_path / "half")
    assert resumed.optimizer_steps == (0 if kind == "critic" else 6)
    train(resumed, second, 2, config)
    save_learner(resumed, tmp_path / "resumed")
    assert digest(tmp_path / "resumed") == digest(tmp_path / "whole") != digest(tmp_path / "half")
    assert {tensor.dtype for tensor in load_file(tmp_path / "half/optimizer.safetensors").values()} == {torch.float32}


def test_there_is_one_step_per_minibatch_and_a_short_one_keeps_the_nominal_divisor(
    make_policy: MakePolicy, make_rollouts: MakeRollouts
) -> None:
    """Without a size, a minibatch is all there is."""
    rollouts, config = make_rollouts(6), UpdateConfig(minibatch=4, epochs=1, shuffle=False)
    losses = train(make_learner(make_policy(), config), rollouts, config=config)
    assert len(losses) == 2
    assert losses[0] == pytest.approx(-sum(rollout.advantage for rollout in rollouts[:4]) / 4, abs=1e-5)
    alone = train(make_learner(make_policy(), config), rollouts[:1], config=config)
    assert alone == [pytest.approx(-rollouts[0].advantage / 4, abs=1e-5)]
    config = UpdateConfig(minibatch=None, epochs=1)
    whole = train(make_learner(make_policy(), config), rollouts, config=config)
    assert whole == [pytest.approx(-sum(rollout.advantage for rollout in rollouts) / 6, abs=1e-5)]


def test_the_seed_decides_the_order_and_nothing_else_does(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    rollouts = make_rollouts(10)
    runs = []
    for seed, noise in ((1, 0), (1, 7), (2, 0)):
        torch.manual_seed(noise)
        runs.append(train(make_learner(make_policy(), CONFIG), rollouts, seed))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_update_stops_when_the_policy_has_moved_too_far(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, estimator: Literal["k1", "k3"]
) -> None:
    kl_stop = KlStop(estimator=estimator, limit=0.5)
    config = CONFIG.model_copy(update={"learning_rate": 0.5, "max_grad_norm": 100.0, "kl_stop": kl_stop})
    learner = make_learner(make_policy(), config)
    stats = update(learner, make_rollouts(16), config, temperature=1.0, seed=0)
    assert stats.stopped_early and len(stats.steps) < stats.planned == 8
    assert stats.steps[-1].kl_stop > 0.5 >= stats.steps[0].kl_stop
    assert learner.optimizer_steps == len(stats.steps) - 1


@pytest.mark.parametrize(
    ("estimator", "found", "steps"), [("k1", 6.5 / 32, 1), ("k3", (math.exp(6.5) - 1 - 6.5) / 32, 0)]
)
def test_one_token_with_a_log_ratio_of_6_5_among_32_rollouts_stops_k3_alone(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, estimator: Literal["k1", "k3"], found: float, steps: int
) -> None:
    config = UpdateConfig(kl_stop=KlStop(estimator=estimator))
    rollouts, learner = make_rollouts(32), make_learner(make_policy(), config)
    (pack,) = pack_rollouts(rollouts, range(32), config.tokens_per_pack, torch.device("cpu"))
    objective = Objective.of(config, 32, temperature=1.0)
    (training_pack,) = compute_fixed_logprobs(learner.policy, [pack], rollouts, objective).attach([pack])
    old = training_pack.old_logprobs.clone()
    old[3] -= 6.5
    stats = optimizer_step(learner, [replace(training_pack, old_logprobs=old)], objective, config)
    assert stats.kl_stop == pytest.approx(found, rel=1e-4)
    assert learner.optimizer_steps == steps


def test_k1_is_the_mean_over_rollouts_of_sums_and_its_absolute_value_counts() -> None:
    """Two packs of one and two rollouts: |(3 - 1) + (-8)| / 3 = 2, whichever sign."""
    log_ratios = torch.tensor([-3.0, 1.0]), torch.tensor([8.0])
    none = torch.zeros(())
    for sign in (1, -1):
        packs = [
            PackStats(none, none, k1(sign * pack_log_ratios).sum(), none, none, 1, 1, rollouts)
            for pack_log_ratios, rollouts in zip(log_ratios, (1, 2), strict=True)
        ]
        assert read_stats(packs, torch.ones(()), SINGLE).kl_stop == pytest.approx(2)


def test_the_gradient_norm_is_measured_before_the_clip_that_bounds_the_step(
    make_policy: MakePolicy, make_rollouts: MakeRollouts
) -> None:
    rollouts = make_rollouts(4)
    config = CONFIG.model_copy(update={"epochs": 1, "max_grad_norm": 1e-3})
    learner = make_learner(make_policy(), config)
    (step,) = update(learner, rollouts, config, temperature=1.0, seed=0).steps
    left = [weight.grad for weight in learner.policy.parameters() if weight.grad is not None]
    assert step.grad_norm > 0.01
    assert sum(grad.pow(2).sum() for grad in left) ** 0.5 == pytest.approx(1e-3, rel=1e-2)


def test_an_engine_that_agrees_with_the_learner_changes_nothing(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    drawn = make_rollouts(8)
    old = update(make_learner(make_policy(), CONFIG), drawn, CONFIG, temperature=1.0, seed=0).old_logprobs
    rollouts = [replace(rollout, engine_logprobs=found.numpy()) for rollout, found in zip(drawn, old, strict=True)]
    for name in ("on-policy", "stale by nothing"):
        learner = make_learner(make_policy(), CONFIG)
        stats = update(learner, rollouts, CONFIG, temperature=1.0, seed=0, stale=name != "on-policy")
        assert stats.corrects_behaviour == (name != "on-policy")
        save_learner(learner, tmp_path / name)
    assert digest(tmp_path / "on-policy") == digest(tmp_path / "stale by nothing")


def test_an_engine_mismatch_is_corrected_on_request(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    """One step, token weights: the first loss is -sum of the mean over tokens of min(pi_old / pi_engine, 2) A."""
    rollouts = [replace(drawn, engine_logprobs=drawn.engine_logprobs - 2) for drawn in make_rollouts(4)]
    config = CONFIG.model_copy(update={"epochs": 1})
    corrected = config.model_copy(update={"loss": config.loss.model_copy(update={"correct_engine_mismatch": True})})
    plain = update(make_learner(make_policy(), config), rollouts, config, temperature=1.0, seed=0)
    stats = update(make_learner(make_policy(), config), rollouts, corrected, temperature=1.0, seed=0)
    weights = [
        (old - torch.from_numpy(rollout.engine_logprobs)).exp().clamp(max=2.0)
        for rollout, old in zip(rollouts, stats.old_logprobs, strict=True)
    ]
    expected = sum(rollout.advantage * float(weight.mean()) for rollout, weight in zip(rollouts, weights, strict=True))
    assert stats.corrects_behaviour and not plain.corrects_behaviour
    assert any((weight == 2).any() for weight in weights) and any((weight < 2).any() for weight in weights)
    assert stats.steps[0].loss == pytest.approx(-expected / 4, rel=1e-5)
    assert plain.steps[0].loss == pytest.approx(-sum(rollout.advantage for rollout in rollouts) / 4, abs=1e-5)


def test_warm_up_then_constant() -> None:
    config = UpdateConfig(learning_rate=0.1, warmup_steps=4)
    assert [learning_rate(config, done) for done in range(6)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert learning_rate(UpdateConfig(learning_rate=0.1), 0) == 0.1


def test_a_loss_that_is_not_finite_stops_with_one_clear_error(
    make_policy: MakePolicy, make_rollouts: MakeRollouts
) -> None:
    policy = make_policy()
    with torch.no_grad():
        next(iter(trained_tensors(policy).values()))[0, 0] = float("nan")
    with pytest.raises(UpdateDiverged, match=r"minibatch 1 of [0-9]: loss nan, .*Lower update\.learning_rate"):
        train(make_learner(policy, CONFIG), make_rollouts(4))


def test_a_gradient_that_overflows_under_a_finite_loss_names_its_rollout_and_changes_no_weight(
    make_policy: MakePolicy, make_rollouts: MakeRollouts
) -> None:
    rollouts = make_rollouts(4)
    rollouts[2] = replace(rollouts[2], advantage=1e25, name="rollout 5 of a_task")
    learner = make_learner(make_policy(), CONFIG)
    before = {name: tensor.detach().clone() for name, tensor in trained_tensors(learner.policy).items()}
    with pytest.raises(UpdateDiverged, match=r"loss -\d.*, gradient norm inf, from rollout 5 of a_task; nothing was"):
        train(learner, rollouts)
    assert learner.optimizer_steps == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in trained_tensors(learner.policy).items())


def test_a_kl_term_without_a_base_is_refused(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    config = UpdateConfig.model_validate({"loss": {"kl_coefficient": 0.1}})
    with pytest.raises(ValueError, match=r"kl_coefficient > 0 .* needs the base policy"):
        train(make_learner(make_policy(), config), make_rollouts(4), config=config)


def test_damaged_or_foreign_optimizer_states_are_refused(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    learner = make_learner(make_policy(), CONFIG)
    train(learner, make_rollouts(4))
    save_learner(learner, tmp_path)
    with pytest.raises(ValueError, match=r"optimizer\.safetensors: does not fit the policy: tensor model\."):
        restore_optimizer(make_learner(make_policy("full"), CONFIG), tmp_path)
    (tmp_path / "learner.json").write_text('{"updates": 1}')
    with pytest.raises(ArtifactError, match=r"learner\.json: no optimizer_steps, an earlier version wrote it; run"):
        restore_optimizer(make_learner(make_policy(), CONFIG), tmp_path)
    (tmp_path / "learner.json").write_text('{"optimizer_steps": 1}')
    (tmp_path / "optimizer.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"optimizer\.safetensors: missing; run the stage"):
        restore_optimizer(make_learner(make_policy(), CONFIG), tmp_path)
