"""Reading the cache in two parts gives what reading all of it gives, and reads less."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.engines.transformers.decode_attention import (
    FREE,
    LADDER,
    Read,
    Reading,
    Tiles,
    decode_attention,
    make_read,
    prompt_reads,
    read_by,
    short_length,
    step_reads,
)

LIKE = torch.zeros(())
ONE = Tiles(1, 1, query_alone=True)


def reads_of(lengths: list[int], tiles: Tiles = ONE) -> list[Read]:
    held = np.array(lengths)
    return step_reads(slice(0, len(held)), np.maximum(held - 1, 0), held, tiles, LIKE)


def test_most_rows_are_read_to_their_own_length_and_the_long_one_again() -> None:
    short, long = reads_of([10] * 20 + [200])
    assert (short.mask.shape[-1], long.mask.shape[-1]) == (10, 200)
    assert long.queries.tolist() == [20]  # type: ignore[union-attr]


def test_lengths_are_whole_tiles() -> None:
    assert [read.mask.shape[-1] for read in reads_of([10] * 20 + [200], LADDER[0])] == [64, 256]
    assert short_length(np.array([10] * 20 + [900]), LADDER[0]) == 64
    assert (LADDER[0].whole_rows(17), FREE.whole_keys(7)) == (32, 7)


def test_equal_rows_are_read_once() -> None:
    (read,) = reads_of([7, 7, 7])
    assert read.mask.shape[-1] == 7


def test_rows_without_use_are_not_read_again() -> None:
    assert len(reads_of([0, 0, 5])) <= 2
    assert all(read.mask.shape[-1] <= 5 for read in reads_of([0, 0, 5]))


def test_the_first_ids_of_a_prompt_do_not_read_to_the_end_of_the_last() -> None:
    reads = list(prompt_reads(5, 2, np.arange(100, 240), LADDER[0], LIKE))
    assert [read.queries for read in reads] == [slice(5, 69), slice(69, 133), slice(133, 145)]
    assert [read.mask.shape[-1] for read in reads] == [192, 256, 256]


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), heads=st.sampled_from([1, 2]))
@settings(max_examples=40)
def test_two_reads_equal_one(lengths: list[int], heads: int) -> None:
    rows, longest = len(lengths), max(lengths)
    generator = torch.Generator().manual_seed(rows * longest)
    query = torch.randn(rows, 2, 1, 8, generator=generator)
    key, value = (torch.randn(rows, heads, longest, 8, generator=generator) for _ in range(2))
    hidden = torch.arange(longest) >= torch.tensor(lengths)[:, None, None, None]
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, torch.finfo(torch.float32).min)
    whole = scaled_dot_product_attention(query, key, value, mask, enable_gqa=True).transpose(1, 2)
    with read_by(Reading(reads_of(lengths), ONE)):
        parts, _ = decode_attention(torch.nn.Identity(), query, key, value, None)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


@given(tiles=st.sampled_from([FREE, *LADDER]), heads=st.sampled_from([1, 2, 4]))
@settings(max_examples=20)
def test_a_prompts_ids_see_what_is_before_them(tiles: Tiles, heads: int) -> None:
    first, length, room = 70, 90, 512
    generator = torch.Generator().manual_seed(heads)
    query = torch.randn(length + 3, 4, 1, 8, generator=generator)
    key, value = (torch.randn(3, heads, room, 8, generator=generator) for _ in range(2))
    reading = Reading(list(prompt_reads(0, 1, np.arange(first, first + length), tiles, LIKE)), tiles)
    with read_by(reading):
        found, _ = decode_attention(torch.nn.Identity(), query, key, value, None)
    seen = torch.arange(room) <= torch.arange(first, first + length)[:, None]
    queries = query[:length].transpose(0, 2)
    exact = scaled_dot_product_attention(queries, key[1:2], value[1:2], attn_mask=seen, enable_gqa=True)
    torch.testing.assert_close(found[:length], exact.permute(2, 0, 1, 3), rtol=1e-5, atol=1e-5)
    assert not found[length:].any()


@given(
    rows=st.integers(1, 5),
    groups=st.sampled_from([(4, 4), (9, 3), (4, 1)]),
    dtype=st.sampled_from(["bfloat16", "float16"]),
)
@settings(max_examples=30)
def test_single_queries_of_lower_precision_are_attended_in_float32(
    rows: int, groups: tuple[int, int], dtype: str
) -> None:
    """As torch's kernel in float64 with the numbers that are given, but for one rounding at the end."""
    (heads, cached), length, width = groups, 37, 16
    generator, low = torch.Generator().manual_seed(rows), getattr(torch, dtype)
    query = torch.randn(rows, heads, 1, width, generator=generator).to(low)
    key, value = (torch.randn(rows, cached, length, width, generator=generator).to(low) for _ in range(2))
    positions = torch.randint(length, (rows,), generator=generator).numpy()
    read = make_read(slice(0, rows), slice(0, rows), positions, length, LIKE.to(low))
    reading = Reading([read], ONE)
    with read_by(reading):
        found, _ = decode_attention(torch.nn.Identity(), query, key, value, None, scaling=0.3)
    wide = (part.double() for part in (query, key, value, read.mask))
    exact = scaled_dot_product_attention(*wide, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(found, exact.to(low), rtol=torch.finfo(low).eps, atol=1e-6)
