"""All weights of a bfloat16 policy train as in float32, in steps that bfloat16 cannot hold."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.checkpoint import restore_optimizer, save_learner
from tasks.core.learner.learner import Learner, make_learner, update
from tasks.core.learner.packing import Rollout
from tasks.core.policies.loading import load_weights
from tasks.core.records.files import digest

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CONFIG = UpdateConfig(minibatch=4, tokens_per_pack=64, learning_rate=3e-6, epochs=8, weight_decay=0.0, betas=(0.5, 0.9))


def trained(policy: nn.Module, rollouts: list[Rollout], config: UpdateConfig = CONFIG) -> Learner:
    learner = make_learner(policy, config)
    update(learner, rollouts, config, temperature=1.0, seed=0)
    return learner


def flat(weights: list[nn.Parameter]) -> Tensor:
    return torch.cat([weight.detach().float().flatten() for weight in weights])


def test_bfloat16_weights_go_where_float32_weights_go(make_policy: MakePolicy, make_rollouts: MakeRollouts) -> None:
    """Both start from the same values, which bfloat16 can hold."""
    rollouts, start = make_rollouts(8), make_policy("full", "bfloat16")
    exact = make_policy("full")
    exact.load_state_dict({name: tensor.float() for name, tensor in start.state_dict().items()})
    before = flat(list(exact.parameters()))
    low, high = trained(start, rollouts), trained(exact, rollouts)
    moved, expected = flat(low.stepped) - before, flat(high.stepped) - before
    assert moved.norm() == pytest.approx(float(expected.norm()), rel=0.05)
    assert nn.functional.cosine_similarity(moved, expected, dim=0) > 0.9
    assert {weight.dtype for weight in start.parameters()} == {torch.bfloat16}
    assert torch.equal(flat(list(start.parameters())), flat(low.stepped).bfloat16().float())
    assert high.masters == {}


def test_a_checkpoint_goes_on_from_what_bfloat16_could_not_hold(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    learner = trained(make_policy("full", "bfloat16"), make_rollouts(8, 1))
    save_learner(learner, tmp_path / "half")
    update(learner, make_rollouts(8, 2), CONFIG, temperature=1.0, seed=0)
    save_learner(learner, tmp_path / "whole")

    policy = make_policy("full", "bfloat16")
    load_weights(policy, tmp_path / "half")
    resumed = make_learner(policy, CONFIG)
    restore_optimizer(resumed, tmp_path / "half")
    update(resumed, make_rollouts(8, 2), CONFIG, temperature=1.0, seed=0)
    save_learner(resumed, tmp_path / "resumed")
    assert digest(tmp_path / "resumed") == digest(tmp_path / "whole")
    assert {tensor.dtype for tensor in load_file(tmp_path / "half" / "optimizer.safetensors").values()} == {
        torch.float32
    }
