import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.engines.transformers.conversations import draw, truncated, uniforms


def whole(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`top_k` and `top_p` of rows that sample among all tokens."""
    return torch.zeros(rows, dtype=torch.int64), torch.ones(rows)


def drawn(logits: list[float], temperature: float, uniform: float) -> tuple[int, float]:
    ids, logprobs = draw(
        torch.tensor([logits]), torch.tensor([temperature]), torch.tensor([uniform], dtype=torch.float64), *whole(1)
    )
    return int(ids), float(logprobs)


def test_the_distribution_function_is_inverted() -> None:
    logits = [math.log(share) for share in (0.25, 0.5, 0.25)]
    cases = {0.0: 0, 0.2499: 0, 0.2501: 1, 0.7499: 1, 0.7501: 2, 1 - 2**-53: 2}
    assert {uniform: drawn(logits, 1.0, uniform)[0] for uniform in cases} == cases


def test_logprobs_are_those_at_the_temperature() -> None:
    token, logprob = drawn([0.0, 2.0], 2.0, 0.9)
    assert token == 1
    assert abs(logprob - math.log(math.e / (1 + math.e))) < 1e-6


def test_greedy_takes_the_largest_logit_and_its_logprob_at_temperature_one() -> None:
    token, logprob = drawn([0.0, 2.0, 1.0], 0.0, 0.999)
    assert token == 1
    assert abs(logprob - math.log(math.exp(2) / (1 + math.exp(2) + math.e))) < 1e-6


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    assert {drawn(logits, 1.0, uniform)[0] for uniform in (0.0, 0.3, 0.5, 0.7, 1 - 2**-53)} == {1, 3}


def test_frequencies_follow_the_distribution() -> None:
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    count = 40_000
    ids, _ = draw(
        shares.log().expand(count, 4), torch.ones(count), torch.from_numpy(uniforms(11, count)), *whole(count)
    )
    assert torch.allclose(ids.bincount(minlength=4) / count, shares, atol=0.01)


@settings(max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(1, 6), st.integers(0, 5))
def test_a_rows_draw_does_not_depend_on_its_place(seed: int, rows: int, shift: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, temperature = torch.randn(rows, 50, generator=generator), torch.rand(rows, generator=generator).round()
    uniform = torch.rand(rows, generator=generator, dtype=torch.float64)
    ids, logprobs = draw(logits, temperature, uniform, *whole(len(logits)))
    moved_ids, moved = draw(*(tensor.roll(shift, 0) for tensor in (logits, temperature, uniform)), *whole(rows))
    assert torch.equal(moved_ids, ids.roll(shift, 0)) and torch.equal(moved, logprobs.roll(shift, 0))


def test_a_seed_names_one_stream_of_which_a_shorter_one_is_the_start() -> None:
    assert np.array_equal(uniforms(2**63 - 1, 5), uniforms(2**63 - 1, 9)[:5])
    assert not np.array_equal(uniforms(1, 5), uniforms(2, 5))


def test_only_the_likeliest_tokens_are_drawn_and_share_the_probability() -> None:
    shares = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).expand(5, 4)
    top_k = torch.tensor([0, 2, 0, 3, 1])
    top_p = torch.tensor([1.0, 1.0, 0.7, 0.5, 0.1])
    expected = [
        [0.1, 0.4, 0.2, 0.3],
        [0, 4 / 7, 0, 3 / 7],
        [0, 4 / 7, 0, 3 / 7],
        [0, 4 / 7, 0, 3 / 7],  # of 4/9, 3/9 and 2/9 the first is less than a half
        [0, 1, 0, 0],
    ]
    assert torch.allclose(truncated(shares, top_k, top_p), torch.tensor(expected))


def test_a_truncated_rows_logprob_is_of_what_it_was_drawn_from_and_the_others_are_as_before() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log().expand(3, 4)
    temperature, uniform = torch.tensor([1.0, 1.0, 0.0]), torch.full((3,), 0.99, dtype=torch.float64)
    top_k, top_p = torch.tensor([2, 0, 2]), torch.ones(3)
    ids, logprobs = draw(logits, temperature, uniform, top_k, top_p)
    plain_ids, plain = draw(logits, temperature, uniform, *whole(len(logits)))
    assert ids.tolist() == [3, 3, 1] and plain_ids.tolist() == [3, 3, 1]
    assert logprobs[0].exp() == pytest.approx(3 / 7) and torch.equal(logprobs[1:], plain[1:])
