"""Logits of a bfloat16 head, which a bfloat16 result would round to steps of 0.125 at 20."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tasks.core.policies.head import use_float32_logits
from tests.tiny_models import tiny_qwen2


def make_model(dtype: torch.dtype, vocabulary: int = 300) -> PreTrainedModel:
    sizes = {"vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    model = tiny_qwen2(**sizes).to(dtype)
    model.lm_head.weight.data.mul_(100)
    return model


def exact(head: nn.Linear, states: Tensor) -> Tensor:
    return states.double() @ head.weight.double().t()


@pytest.mark.parametrize("vocabulary", [300, 20_000])
def test_only_the_rounding_of_the_result_is_left_out(vocabulary: int) -> None:
    model = make_model(torch.bfloat16, vocabulary)
    head, states = model.get_output_embeddings(), torch.randn(2, 5, 64, dtype=torch.bfloat16)
    rounded = head(states)
    use_float32_logits(model)
    logits = head(states)
    assert logits.dtype == torch.float32 and logits.shape == (2, 5, vocabulary)
    assert (exact(head, states) - logits).abs().max() < 1e-4
    assert (exact(head, states) - rounded).abs().max() > 0.06  # half a step


def test_the_models_own_pass_gives_them_and_a_second_call_or_a_copy_changes_nothing() -> None:
    model = make_model(torch.bfloat16)
    ids = torch.arange(7)[None]
    use_float32_logits(model)
    first = model(ids).logits
    use_float32_logits(model)
    other = copy.deepcopy(model)
    other.lm_head.weight.data.zero_()
    assert first.dtype == torch.float32 and torch.equal(model(ids).logits, first)
    assert not other(ids).logits.any()


def test_gradients_are_those_of_the_exact_product_in_the_heads_precision() -> None:
    model = make_model(torch.bfloat16)
    use_float32_logits(model)
    head, scale = model.get_output_embeddings(), torch.randn(9, 300)
    states = torch.randn(9, 64, dtype=torch.bfloat16, requires_grad=True)
    (head(states) * scale).sum().backward()
    wide = states.detach().double().requires_grad_()
    weight = head.weight.detach().double().requires_grad_()
    (wide @ weight.t() * scale).sum().backward()
    for found, expected in ((states.grad, wide.grad), (head.weight.grad, weight.grad)):
        assert found is not None and expected is not None and found.dtype == torch.bfloat16
        assert (found.double() - expected).norm() < 0.01 * expected.norm()


def test_a_float32_head_keeps_its_bits() -> None:
    model, ids = make_model(torch.float32), torch.arange(7)[None]
    before = model(ids).logits
    use_float32_logits(model)
    assert torch.equal(model(ids).logits, before) and "forward" not in model.lm_head.__dict__
