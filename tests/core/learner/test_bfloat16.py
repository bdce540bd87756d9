"""A bfloat16 policy: its first importance weights, on kernels whose rounding depends on a pack's shape, and all of its
weights, which train as in float32 in steps that bfloat16 cannot hold.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner import learner
from tasks.core.learner.learner import Learner, make_learner, update
from tasks.core.learner.packing import Rollout
from tasks.core.policies.loading import trainable_policy, trained_tensors
from tests.tiny_models import tiny_qwen2

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CONFIG = UpdateConfig(minibatch=8, tokens_per_pack=64, learning_rate=1e-5, fold_adapter=False)

SMALL_STEPS = UpdateConfig(
    minibatch=4, tokens_per_pack=64, learning_rate=3e-6, epochs=8, weight_decay=0.0, betas=(0.5, 0.9)
)


def sum_by_shape(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Sum in two partial sums, each rounded, split at a column that follows from the number of rows (a forward hook).

    A GPU's library chooses the split of a sum by shape (split-k), and rounds the parts in bfloat16 by default; this
    CPU's products have the same bits for any number of rows.
    """
    weight: Any = module.weight
    split = 1 + inputs[0].shape[-2] % (weight.shape[1] - 1)
    parts = linear(inputs[0][..., :split], weight[:, :split]), linear(inputs[0][..., split:], weight[:, split:])
    return parts[0] + parts[1]


def make_policy() -> nn.Module:
    """Make a model of six layers that matter as much as the embedding, with logits up to about 20."""
    model = tiny_qwen2(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=6,
        num_key_value_heads=1,
        initializer_range=0.125,
    )
    model.lm_head.weight.data.normal_(0, 0.9)
    for layer in model.base_model.layers:
        layer.mlp.down_proj.register_forward_hook(sum_by_shape)
    frozen = model.to(torch.bfloat16).requires_grad_(False).eval()
    policy = trainable_policy(frozen, PolicyConfig(dtype="bfloat16", device="cpu"), None, seed=0)
    with torch.no_grad():
        for tensor in trained_tensors(policy).values():
            tensor.add_(0.02 * torch.randn(tensor.shape))
    return policy


def first_step(rollouts: list[Rollout], *, same_packs: bool = True) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "_computes_in_float32", lambda policy: not same_packs)
        return update(make_learner(make_policy(), CONFIG), rollouts, CONFIG, temperature=1.0, seed=0).steps[0]


def test_the_first_minibatch_s_weights_are_exactly_one_in_bfloat16(make_rollouts: MakeRollouts) -> None:
    rollouts = make_rollouts(24)
    step = first_step(rollouts)
    assert (step.clipped, step.kl, step.kl_stop) == (0, 0.0, 0.0)
    assert step.units > 20
    other = first_step(rollouts, same_packs=False)
    assert other.clipped > 0 and other.kl > 0


@pytest.mark.parametrize("rollouts", [1, 5, 12])
def test_every_rollout_has_its_fixed_log_probs_whatever_the_minibatches(
    make_rollouts: MakeRollouts, rollouts: int
) -> None:
    found = update(make_learner(make_policy(), CONFIG), make_rollouts(rollouts), CONFIG, temperature=1.0, seed=0)
    assert [len(one) for one in found.old_logprobs] == [len(one.policy_positions) for one in make_rollouts(rollouts)]


def trained(policy: nn.Module, rollouts: list[Rollout], config: UpdateConfig = SMALL_STEPS) -> Learner:
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
