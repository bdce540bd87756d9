"""The model as the learner passes it: attention in packed rows, flash-attn's layout, and passes of one rollout each."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.config.update import UpdateConfig
from tasks.core.learner import model as attention
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.logprobs import token_logprobs
from tasks.core.learner.model import pack_capacity, packed_attention, use_passes, varlen_attention
from tasks.core.learner.packing import Rollout, pack_rollouts

LENGTHS = (5, 1, 7)


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    query = torch.randn(1, 4, tokens, 8, generator=generator)
    key, value = torch.randn(2, 1, 2, tokens, 8, generator=generator)
    return query, key, value


@pytest.mark.parametrize(("window", "block"), [(None, 1024), (3, 2), (3, 1024)])
def test_a_token_sees_its_own_rollout_as_far_back_as_a_window_says(
    window: int | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_BLOCK", block)
    query, key, value = tensors()
    how = {"rollout_lengths": LENGTHS, "scaling": 0.3, "sliding_window": window}
    mixed, _ = packed_attention(nn.Identity(), query, key, value, None, **how)
    start = 0
    for length in LENGTHS:
        own = slice(start, start + length)
        scores = 0.3 * query[0, :, own] @ key[0].repeat_interleave(2, 0)[:, own].transpose(1, 2)
        seen = torch.ones(length, length).tril().bool() & torch.ones(length, length).triu(1 - (window or 99)).bool()
        expected = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value[0].repeat_interleave(2, 0)[:, own]
        assert torch.allclose(mixed[0, own].transpose(0, 1), expected, atol=1e-6)
        start += length


def reference_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    longest_q: int,
    longest_k: int,
    **how: object,
) -> Tensor:
    """Compute flash_attn_varlen_func: q [T, H, D], k and v [T, H_kv, D], int32 starts [R + 1] -> [T, H, D]."""
    assert how == {"softmax_scale": 0.3, "causal": True}
    assert starts_q.dtype == torch.int32 and torch.equal(starts_q, starts_k) and longest_q == longest_k == max(LENGTHS)
    pieces = []
    for start, end in zip(starts_q.tolist(), starts_q.tolist()[1:], strict=False):
        parts = (heads[start:end].transpose(0, 1)[None] for heads in (query, key, value))
        pieces.append(
            scaled_dot_product_attention(*parts, is_causal=True, scale=0.3, enable_gqa=True)[0].transpose(0, 1)
        )
    return torch.cat(pieces)


def test_the_layout_for_flash_attention_gives_the_same() -> None:
    query, key, value = tensors()
    expected, _ = packed_attention(nn.Identity(), query, key, value, None, rollout_lengths=LENGTHS, scaling=0.3)
    found = varlen_attention(query, key, value, LENGTHS, 0.3, reference_kernel)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-6)


def test_flash_attention_gets_the_window() -> None:
    told: dict[str, object] = {}

    def kernel(query: Tensor, *_: object, **how: object) -> Tensor:
        told.update(how)
        return query

    varlen_attention(*tensors(), LENGTHS, 0.3, kernel, window=3)
    assert told["window_size"] == (2, 0)


@pytest.mark.parametrize("way", ["single", "single_eager"])
def test_log_probs_and_gradients_are_those_of_packs(
    make_policy: Callable[..., nn.Module], make_rollouts: Callable[..., list[Rollout]], way: str
) -> None:
    policy, rollouts = make_policy(), make_rollouts(4)
    (pack,) = pack_rollouts(rollouts, range(4), 10_000, torch.device("cpu"))
    figures = []
    for one in ("packed", way):
        prepare_forward(policy, UpdateConfig(), SINGLE, one)  # type: ignore[arg-type]
        found = token_logprobs(policy, pack, 1.0, 1024, entropy=False).logprobs
        trained = [weight for weight in policy.parameters() if weight.requires_grad]
        figures.append((found.detach(), torch.autograd.grad(found.square().sum(), trained)))
    (packed, gradients), (alone, others) = figures
    assert torch.allclose(packed, alone, atol=1e-5)
    assert all(torch.allclose(ours, theirs, atol=1e-4) for ours, theirs in zip(gradients, others, strict=True))


def test_packs_are_of_one_rollout_where_passes_are_not_shared(make_policy: Callable[..., nn.Module]) -> None:
    policy = make_policy()
    use_passes(policy, None)
    assert pack_capacity(policy, 600) == 600
    use_passes(policy, "single")
    assert pack_capacity(policy, 600) == 1
