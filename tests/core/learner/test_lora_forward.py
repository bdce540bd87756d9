"""LoRA layers over a base of lower precision: as exact as peft's in float32, with fewer tensors to keep."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.learner.model import fold_adapter, narrow_adapter
from tasks.core.policies.head import use_float32_logits
from tasks.core.policies.loading import freeze_base, save_policy, trainable_policy, trained_tensors
from tasks.core.policies.policy_weights import PolicyWeights
from tests.core.learner.conftest import VOCABULARY

IDS = (torch.arange(60) % VOCABULARY).reshape(2, 30)


@pytest.fixture(scope="module")
def peft_policy(make_policy: Callable[..., nn.Module]) -> nn.Module:
    """Return a policy whose adapter moves the logits by several times the rounding of the bfloat16 base."""
    return make_policy(dtype="bfloat16")


def changed(policy: nn.Module, change: Callable[[nn.Module], Any]) -> nn.Module:
    other = copy.deepcopy(policy)
    change(other)
    return other


def logits_and_gradient(policy: nn.Module) -> tuple[Tensor, Tensor]:
    """Return logits and the gradient of one log-prob's sum, all trained weights in one vector, both in float64."""
    policy.zero_grad(set_to_none=True)
    logits = policy(IDS).logits.double()
    logits.log_softmax(-1)[..., 7].sum().backward()
    weights = trained_tensors(policy).values()
    return logits.detach(), torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]).double()


def test_logits_and_gradients_are_as_exact_as_peft_s(peft_policy: nn.Module) -> None:
    exact = logits_and_gradient(changed(peft_policy, nn.Module.double))
    ours = logits_and_gradient(changed(peft_policy, narrow_adapter))
    peft_s = logits_and_gradient(peft_policy)
    for found, reference, truth in zip(ours, peft_s, exact, strict=True):
        error, allowed = ((one - truth).norm() / truth.norm() for one in (found, reference))
        assert 0 < error < 1.25 * allowed < 0.1


def test_the_adapter_is_not_rounded_away_and_can_be_left_out(peft_policy: nn.Module) -> None:
    policy: Any = changed(peft_policy, narrow_adapter)
    with torch.no_grad():
        trained = policy(IDS).logits
        with policy.disable_adapter():
            base = policy(IDS).logits
        with peft_policy.disable_adapter():  # type: ignore[operator]
            assert torch.equal(base, peft_policy(IDS).logits)
    assert (trained - base).abs().max() > 0.5


def test_weights_stay_float32_and_no_input_is_kept_in_it(peft_policy: nn.Module) -> None:
    kept: dict[torch.dtype, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.dtype] = kept.get(tensor.dtype, 0) + tensor.numel()
        return tensor

    def floats(policy: nn.Module) -> int:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            policy(IDS)
        return kept[torch.float32]

    narrow = changed(peft_policy, narrow_adapter)
    assert {weight.dtype for weight in trained_tensors(narrow).values()} == {torch.float32}
    assert floats(narrow) < floats(peft_policy) / 2


def test_an_adapter_of_the_head_trains_with_float32_logits_and_the_engine_computes_the_same(
    base: Path, tmp_path: Path
) -> None:
    settings = LoraSettings(rank=2, targets=("q_proj", "lm_head"))
    config = PolicyConfig(dtype="bfloat16", device="cpu", lora=settings)
    policy = trainable_policy(untied(base, config), config, None, seed=3)
    with torch.no_grad():
        for tensor in trained_tensors(policy).values():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
    use_float32_logits(policy)
    narrow_adapter(policy)
    logits, gradient = logits_and_gradient(policy)
    assert logits.float().double().equal(logits) and not logits.bfloat16().double().equal(logits)
    assert gradient.isfinite().all() and gradient.abs().max() > 0
    save_policy(policy, tmp_path)
    engine = untied(base, config)
    use_float32_logits(engine)
    PolicyWeights(engine).load(tmp_path)
    with torch.no_grad():
        assert engine(IDS).logits.double().equal(logits)


def untied(base: Path, config: PolicyConfig) -> Any:
    """Return the base model with a head of its own, which an adapter may have."""
    sizes = AutoConfig.from_pretrained(base, tie_word_embeddings=False)
    torch.manual_seed(0)
    return freeze_base(AutoModelForCausalLM.from_config(sizes, dtype=torch.bfloat16), config)


def test_a_float32_policy_keeps_its_bits_and_is_folded_as_before(peft_policy: nn.Module) -> None:
    wide = changed(peft_policy, nn.Module.float)
    both = changed(changed(wide, narrow_adapter), fold_adapter)
    with torch.no_grad():
        assert torch.equal(changed(wide, narrow_adapter)(IDS).logits, wide(IDS).logits)
        assert torch.equal(both(IDS).logits, changed(wide, fold_adapter)(IDS).logits)
