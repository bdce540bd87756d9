"""Signal coverage by hand, as properties, and on simulated pilots with known rates."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.signal_coverage import Coverage, coverage, signal_share

rates = st.floats(0, 1)


def known(*success_rates: float) -> Coverage:
    """Return tasks with known rates: distributions of almost no width."""
    certain = 1e9
    rate = np.array(success_rates)
    return Coverage(certain * rate + 1e-12, certain * (1 - rate) + 1e-12)


def test_the_share_by_hand() -> None:
    assert signal_share(0.5, 2) == 0.5
    assert signal_share([0.0, 0.5, 1.0], 6).tolist() == [0, 1 - 2 / 64, 0]
    assert known(0.5, 0.1).share(4) == pytest.approx((1 - 2 / 16 + 1 - 0.1**4 - 0.9**4) / 2, abs=1e-6)


@given(rates, st.integers(1, 30))
def test_more_rollouts_never_carry_less_and_both_outcomes_count_alike(rate: float, rollouts: int) -> None:
    share = signal_share(rate, rollouts)
    assert -1e-12 <= share <= signal_share(rate, rollouts + 1) + 1e-12 <= 1 + 2e-12
    assert share == pytest.approx(signal_share(1 - rate, rollouts), abs=1e-9)


@given(rates)
def test_pairs_and_triples_bring_the_same_per_rollout_and_larger_groups_less(rate: float) -> None:
    each = [float(signal_share(rate, k)) / k for k in range(2, 8)]
    assert each[0] == pytest.approx(each[1], abs=1e-12)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(each[1:]))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20))
def test_any_pilot_gives_shares_between_0_and_1(pairs: list[tuple[int, int]]) -> None:
    played = [a + b for a, b in pairs]
    if not sum(played):
        with pytest.raises(ValueError, match="success rates need rollouts"):
            coverage([a for a, _ in pairs], played)
        return
    found = coverage([a for a, _ in pairs], played)
    assert all(-1e-6 <= found.share(k) <= 1 for k in (2, 6, 64))


@pytest.mark.parametrize("shape", [(0.3, 0.5), (2.0, 2.0), (0.2, 2.0)])
@pytest.mark.parametrize("rollouts", [4, 6, 16])
def test_a_pilot_of_six_foretells_other_groups(shape: tuple[float, float], rollouts: int) -> None:
    """72 tasks x 6 rollouts, ten pilots; the plain rates successes / 6 would be 12 to 18 points too low at 16."""
    rng = np.random.default_rng(7)
    errors = []
    for _ in range(10):
        rate = rng.beta(*shape, 72)
        found = coverage(rng.binomial(6, rate).tolist(), [6] * 72)
        errors.append(found.share(rollouts) - float(signal_share(rate, rollouts).mean()))
    assert abs(np.mean(errors)) < 0.02
    assert np.max(np.abs(errors)) < 0.1
