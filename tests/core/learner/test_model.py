"""Attention inside packed rows: each rollout attends to itself, and flash-attn's kernel gets the right layout."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.learner import model as attention
from tasks.core.learner.model import packed_attention, varlen_attention

LENGTHS = (5, 1, 7)


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    query = torch.randn(1, 4, tokens, 8, generator=generator)
    key, value = torch.randn(2, 1, 2, tokens, 8, generator=generator)
    return query, key, value


def test_a_rollout_attends_to_itself_only() -> None:
    query, key, value = tensors()
    mixed, _ = packed_attention(nn.Identity(), query, key, value, None, rollout_lengths=LENGTHS, scaling=0.3)
    start = 0
    for length in LENGTHS:
        own = slice(start, start + length)
        scores = 0.3 * query[0, :, own] @ key[0].repeat_interleave(2, 0)[:, own].transpose(1, 2)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        expected = scores.softmax(-1) @ value[0].repeat_interleave(2, 0)[:, own]
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


@pytest.mark.parametrize("block", [2, 1024])
def test_a_window_hides_what_lies_further_back(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK", block)
    query, key, value = tensors()
    how = {"rollout_lengths": LENGTHS, "scaling": 0.3, "sliding_window": 3}
    mixed, _ = packed_attention(nn.Identity(), query, key, value, None, **how)
    start = 0
    for length in LENGTHS:
        own = slice(start, start + length)
        scores = 0.3 * query[0, :, own] @ key[0].repeat_interleave(2, 0)[:, own].transpose(1, 2)
        seen = torch.ones(length, length).tril().bool() & torch.ones(length, length).triu(-2).bool()
        expected = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value[0].repeat_interleave(2, 0)[:, own]
        assert torch.allclose(mixed[0, own].transpose(0, 1), expected, atol=1e-6)
        start += length


def test_flash_attention_gets_the_window() -> None:
    told: dict[str, object] = {}

    def kernel(query: Tensor, *_: object, **how: object) -> Tensor:
        told.update(how)
        return query

    varlen_attention(*tensors(), LENGTHS, 0.3, kernel, window=3)
    assert told["window_size"] == (2, 0)
