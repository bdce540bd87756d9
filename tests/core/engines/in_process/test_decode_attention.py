"""Reading the cache in two parts gives what reading all of it gives, and reads less."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from tasks.core.engines.in_process.decode_attention import decode_attention, plan_reading

CPU = torch.device("cpu")


def test_most_rows_are_read_to_their_own_length_and_the_long_one_again() -> None:
    lengths = np.array([10] * 20 + [200])
    reading = plan_reading(lengths, CPU)
    assert reading.short == 10
    assert reading.long.tolist() == [20]


def test_equal_rows_are_read_once() -> None:
    reading = plan_reading(np.array([7, 7, 7]), CPU)
    assert (reading.short, reading.long.tolist()) == (7, [])


def test_rows_without_use_are_not_read_again() -> None:
    assert plan_reading(np.array([0, 0, 5]), CPU).long.tolist() in ([2], [])


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), heads=st.sampled_from([1, 2]))
@settings(max_examples=40)
def test_two_reads_equal_one(lengths: list[int], heads: int) -> None:
    rows, longest = len(lengths), max(lengths)
    generator = torch.Generator().manual_seed(rows * longest)
    query = torch.randn(rows, 2, 1, 8, generator=generator)
    key, value = (torch.randn(rows, heads, longest, 8, generator=generator) for _ in range(2))
    hidden = torch.arange(longest) >= torch.tensor(lengths)[:, None, None, None]
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, torch.finfo(torch.float32).min)
    whole, _ = decode_attention(torch.nn.Identity(), query, key, value, mask)
    parts, _ = decode_attention(
        torch.nn.Identity(), query, key, value, mask, reading=plan_reading(np.array(lengths), CPU)
    )
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


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
    hidden = torch.arange(length) > torch.randint(length, (rows, 1, 1, 1), generator=generator)
    mask = torch.zeros(hidden.shape, dtype=low).masked_fill_(hidden, torch.finfo(low).min)
    found, _ = decode_attention(torch.nn.Identity(), query, key, value, mask, scaling=0.3)
    wide = (part.double() for part in (query, key, value, mask))
    exact = scaled_dot_product_attention(*wide, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(found, exact.to(low), rtol=torch.finfo(low).eps, atol=1e-6)
