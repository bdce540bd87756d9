"""The statistics of a delivery's proof: by hand, as properties, and on the noise of a real model in bfloat16."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.client import WrongPolicy
from tasks.core.engines.vllm.delivery import Comparison, check_delivery, compare
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.delivery_probe import lasting_sequences, sequence_logprobs
from tasks.core.policies.loading import load_base_model
from tasks.core.records.delivery_probe import mean_difference

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
TOKENS = 1500
BF16_NOISE = 0.02
"""Standard deviation per token of a correct server around the learner, in nats; the mean |difference| is 0.8 of it."""


def drawn(seed: int, apart: float, noise: float, position: float) -> tuple[list[float], list[float], list[float]]:
    """Answer, expected and other log-probs: the policies `apart` on average, each reading with `noise`."""
    random = np.random.default_rng(seed)
    other = random.normal(-2, 1, TOKENS)
    step = random.laplace(0, apart, TOKENS)
    read = [other + place * step + random.normal(0, noise, TOKENS) for place in (position, 1, 0)]
    answer, expected, old = (found.tolist() for found in read)
    return answer, expected, old


def verdict(seed: int, apart: float, noise: float, position: float) -> str:
    answer, expected, other = drawn(seed, apart, noise, position)
    return compare(answer, expected, other, "the old one").verdict


def test_the_place_on_the_way_by_hand() -> None:
    """d = (1, 2, 2), y = a - mid = (0.4, 0.85, 0.75): slope 3.6 / 9. Residuals (0, 0.05, -0.05) over 1 - h with
    h = (1, 4, 4) / 9 are (0, 0.09, -0.09): error = 2 sqrt(4 * 0.09^2 + 4 * 0.09^2) / 9."""
    found = compare([-1.1, -2.15, -1.25], [-1.0, -2.0, -1.0], [-2.0, -4.0, -3.0], "x")
    assert found.position == pytest.approx(0.9)
    assert found.error == pytest.approx(2 * 0.0648**0.5 / 9)
    assert found.apart == pytest.approx(5 / 3)


def test_tokens_that_the_other_policy_was_not_asked_about_are_left_out() -> None:
    answer, expected, other = drawn(0, 0.1, 0.001, 1)
    part = compare(answer, expected, [*other[:50], *[None] * (TOKENS - 50)], "x")
    assert part == compare(answer[:50], expected[:50], other[:50], "x")
    nothing = compare(answer, expected, [None] * TOKENS, "x")
    assert (nothing.verdict, nothing.apart) == ("cannot tell", 0.0)


@given(st.integers(0, 10_000), st.floats(1e-4, 1.0))
def test_without_noise_the_smallest_step_is_told(seed: int, apart: float) -> None:
    assert verdict(seed, apart, 0.0, 1) == "delivered"
    assert verdict(seed, apart, 0.0, 0) == "not delivered"
    assert verdict(seed, apart, 0.0, 2) == "not delivered"  # applied twice


@given(st.integers(0, 10_000), st.floats(0.0, 0.2), st.floats(1e-6, 0.1))
def test_no_correct_server_is_refused_and_no_stale_one_passes(seed: int, apart: float, noise: float) -> None:
    assert verdict(seed, apart, noise, 1) != "not delivered"
    assert verdict(seed, apart, noise, 0) != "delivered"


@given(st.integers(0, 10_000), st.floats(0.02, 0.04))
def test_policies_apart_by_little_more_than_bfloat16s_noise_are_told(seed: int, apart: float) -> None:
    """The halfway rule refused such deliveries: the server's distance from the new policy was over half of `apart`."""
    assert verdict(seed, apart, BF16_NOISE, 1) == "delivered"
    assert verdict(seed, apart, BF16_NOISE, 0) == "not delivered"


def test_a_probe_that_cannot_tell_says_so_and_refuses_nobody() -> None:
    for position in (0, 1):
        answer, expected, other = drawn(3, 0.001, BF16_NOISE, position)
        proof = check_delivery(answer, expected, {"the old one": other}, "bfloat16", "server", "i001")
        (one,) = proof.undecided
        assert one.other == "the old one" and one.apart > 0.001
        assert proof.figures()["comparisons"][0]["verdict"] == "cannot tell"


def test_policies_that_compute_alike_are_not_told_apart() -> None:
    answer, expected, _ = drawn(4, 0.1, 0.0, 1)
    (one,) = check_delivery(answer, expected, {"base": expected}, "float32", "server", "i000").undecided
    assert one.apart == 0 and one.figures()["position"] is None


def test_another_model_is_refused_whatever_lies_beside_it() -> None:
    answer, expected, _ = drawn(5, 0.1, 0.0, 1)
    elsewhere = [value - 0.3 * (index % 2) for index, value in enumerate(answer)]
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(WrongPolicy, match=r"server: the server samples from another model.*of i001 by 0\.15"):
            check_delivery(elsewhere, expected, {}, dtype, "server", "i001")


@pytest.mark.parametrize("strange", [math.nan, -math.inf])
@pytest.mark.parametrize("count", [1, TOKENS])
def test_log_probs_that_are_no_numbers_prove_nothing(strange: float, count: int) -> None:
    answer, expected, other = drawn(5, 0.1, 0.0, 1)
    broken = [strange] * count + answer[count:]
    with pytest.raises(WrongPolicy, match=rf"server: {count} of the {TOKENS} log-probs that it gives for i001 are not"):
        check_delivery(broken, expected, {"the policy before it": other}, "float32", "server", "i001")


def test_no_limit_allows_a_difference_from_nan() -> None:
    assert mean_difference([-1.0, math.nan], [-1.0, -2.0]) == math.inf > mean_difference([-1.0, -4.0], [-1.0, -2.0])


def test_a_third_policy_is_refused_though_it_is_as_near() -> None:
    """Two adapters drawn alike: neither is on the way to the other."""
    _, expected, other = drawn(6, 0.03, 0.001, 1)
    third, _, _ = drawn(7, 0.03, 0.001, 1)
    shift = np.subtract(third, np.random.default_rng(7).normal(-2, 1, TOKENS))
    with pytest.raises(WrongPolicy, match="not delivered"):
        check_delivery((np.array(other) + shift).tolist(), expected, {"old": other}, "bfloat16", "server", "i001")


def test_one_token_proves_nothing_however_far_it_moved() -> None:
    other = [-1.0] * 50
    expected = [-9.0, *other[1:]]
    answer = [-9.2, *[value + 0.01 * (index % 3 - 1) for index, value in enumerate(other[1:])]]
    assert compare(answer, expected, other, "x").verdict == "cannot tell"


@pytest.fixture(scope="module")
def readings() -> Callable[[int, float], np.ndarray]:
    """Log-probs of the embedded policy in bfloat16, its weights moved by `size` in the direction `seed`."""
    config = PolicyConfig(device="cpu", dtype="bfloat16")
    model = load_base_model(SHIPPED, config)
    exact = {name: weight.detach().float() for name, weight in model.named_parameters()}

    def read(seed: int, size: float, rounding: int) -> np.ndarray:
        """`rounding` draws how weights are rounded to bfloat16: a correct implementation that computes otherwise."""
        steps, dice = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(rounding)
        for name, weight in model.named_parameters():
            spread = exact[name].std()
            moved = exact[name] + size * spread * torch.randn(exact[name].shape, generator=steps)
            jitter = 2**-7 * moved.abs() * (torch.rand(moved.shape, generator=dice) - 0.5)
            weight.data.copy_(moved + jitter)
        return np.concatenate([np.array(one) for one in sequence_logprobs(model, sequences)])

    from tasks.core.policies.loading import load_tokenizer

    sequences = lasting_sequences(ChatFormat(load_tokenizer(SHIPPED)), 800)
    return read


def test_the_standard_error_is_right_on_the_noise_of_a_real_model(readings: Callable[..., np.ndarray]) -> None:
    """Where two policies are one, the position is 1/2, and no farther from it than its standard error says.

    Weights that are rounded otherwise are the worst case: all tokens share them.
    """
    found = [compare(*(readings(0, 0.0, 3 * trial + part) for part in range(3)), "x") for trial in range(60)]
    scores = np.array([(one.position - 0.5) / one.error for one in found])
    assert np.abs(scores.mean()) < 4 / len(scores) ** 0.5
    assert 0.5 < scores.std() < 1.2
    assert {one.verdict for one in found} == {"cannot tell"}


def test_a_real_step_is_told_from_the_noise_of_a_real_model(readings: Callable[..., np.ndarray]) -> None:
    old, new = readings(0, 0.0, 1), readings(5, 0.03, 2)
    here: Comparison = compare(readings(5, 0.03, 3), new, old, "x")
    there = compare(readings(0, 0.0, 4), new, old, "x")
    assert 0.01 < np.abs(readings(5, 0.03, 3) - new).mean() < 0.1
    assert (here.verdict, there.verdict) == ("delivered", "not delivered")
