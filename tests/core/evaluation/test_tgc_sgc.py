"""TGC, SGC and their clustered standard errors: by hand, by property, by simulation."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.evaluation.tgc_sgc import (
    Outcome,
    by_difficulty,
    clustered_estimate,
    require_complete,
    sgc,
    sgc_gain,
    tgc,
    tgc_gain,
)


def played(verdicts: dict[str, str], run: int = 0) -> list[Outcome]:
    """Read {"a": "110"} as: scenario a has three tasks, of which the last failed."""
    return [
        Outcome(f"{scenario}_{number}", scenario, 1, run, verdict == "1")
        for scenario, row in verdicts.items()
        for number, verdict in enumerate(row)
    ]


def test_tgc_and_sgc_by_hand() -> None:
    outcomes = played({"a": "111", "b": "110", "c": "000"})
    assert tgc(outcomes).value == pytest.approx(100 * 5 / 9)
    assert sgc(outcomes).value == pytest.approx(100 / 3)


def test_standard_errors_by_hand() -> None:
    """Cluster sums of deviations from 5/9 are 12/9, 3/9 and -15/9, so se = sqrt(3/2 * 378/81) / 9."""
    outcomes = played({"a": "111", "b": "110", "c": "000"})
    assert tgc(outcomes).standard_error == pytest.approx(100 * math.sqrt(1.5 * 378 / 81) / 9)
    assert sgc(outcomes).standard_error == pytest.approx(100 * math.sqrt(1.5 * (4 / 9 + 1 / 9 + 1 / 9)) / 3)


def test_runs_are_averaged_and_a_scenario_counts_within_its_run() -> None:
    """Every task of `a` is solved in one of the two runs, but no run solves all of them."""
    outcomes = played({"a": "110", "b": "111"}) + played({"a": "001", "b": "111"}, run=1)
    assert tgc(outcomes).value == pytest.approx(100 * 9 / 12)
    assert sgc(outcomes).value == 50


def test_a_second_run_with_the_same_verdicts_adds_no_certainty() -> None:
    verdicts = {"a": "111", "b": "110", "c": "000"}
    once, twice = played(verdicts), played(verdicts) + played(verdicts, run=1)
    assert tgc(twice).standard_error == pytest.approx(tgc(once).standard_error)
    assert sgc(twice).standard_error == pytest.approx(sgc(once).standard_error)


def test_one_scenario_has_no_standard_error() -> None:
    outcomes = played({"a": "110"})
    assert tgc(outcomes).standard_error is None
    assert sgc(outcomes).standard_error is None


def test_no_spread_gives_zero() -> None:
    assert tgc(played({"a": "111", "b": "111"})).standard_error == 0


def test_nothing_played_is_an_error() -> None:
    with pytest.raises(ValueError, match="no task was played"):
        tgc([])


def test_gain_by_hand_is_paired() -> None:
    """Both policies fail the same hard scenario: the difference is 1 task of 3 in two scenarios each, and 0."""
    base, selected = played({"a": "110", "b": "110", "c": "000"}), played({"a": "111", "b": "111", "c": "000"})
    gain = tgc_gain(selected, base)
    assert gain.value == pytest.approx(100 * 2 / 9)
    assert gain.standard_error == pytest.approx(100 * math.sqrt(1.5 * (1 / 9 + 1 / 9 + 4 / 9)) / 9)
    assert sgc_gain(selected, base).value == pytest.approx(100 * 2 / 3)
    unpaired = math.hypot(tgc(selected).standard_error or 0, tgc(base).standard_error or 0)
    assert gain.standard_error < unpaired


def test_a_gain_needs_the_same_tasks_and_runs() -> None:
    with pytest.raises(ValueError, match="same tasks in the same evaluation runs"):
        tgc_gain(played({"a": "1"}), played({"a": "1"}, run=1))


def test_a_policy_gains_nothing_over_itself() -> None:
    outcomes = played({"a": "110", "b": "111", "c": "000"})
    assert (tgc_gain(outcomes, outcomes).value, tgc_gain(outcomes, outcomes).standard_error) == (0, 0)


def test_by_difficulty_parts_the_outcomes() -> None:
    outcomes = [Outcome("t1", "s1", 3, 0, True), Outcome("t2", "s2", 1, 0, False), Outcome("t3", "s3", 3, 0, False)]
    assert {level: len(part) for level, part in by_difficulty(outcomes).items()} == {1: 1, 3: 2}


@pytest.mark.parametrize("broken", ["missing", "twice", "run too many"])
def test_incomplete_runs_are_refused(broken: str) -> None:
    outcomes = played({"a": "11"}) + played({"a": "11"}, run=1)
    require_complete(outcomes, 2)
    extra = [Outcome("a_0", "a", 1, 2, True)] if broken == "run too many" else outcomes[:1]
    with pytest.raises(ValueError, match="task a_0 was not played exactly once in evaluation run"):
        require_complete(outcomes[1:] if broken == "missing" else outcomes + extra, 2)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_singleton_clusters_give_the_ordinary_standard_error(values: list[float]) -> None:
    estimate = clustered_estimate(values, [str(index) for index in range(len(values))])
    ordinary = 100 * np.std(values, ddof=1) / math.sqrt(len(values))
    assert estimate.standard_error == pytest.approx(ordinary, abs=1e-9)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcde")), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_order_and_cluster_names_do_not_matter(rows: list[tuple[bool, str]], rng: random.Random) -> None:
    shuffled = [(value, f"scenario {name}") for value, name in rng.sample(rows, len(rows))]
    first, second = (clustered_estimate([v for v, _ in part], [c for _, c in part]) for part in (rows, shuffled))
    assert first.value == pytest.approx(second.value)
    assert first.standard_error == pytest.approx(second.standard_error)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=20))
def test_sgc_never_exceeds_tgc(rows: list[list[bool]]) -> None:
    outcomes = [
        Outcome(f"{s}_{n}", f"{s}", 1, 0, success) for s, row in enumerate(rows) for n, success in enumerate(row)
    ]
    assert sgc(outcomes).value <= tgc(outcomes).value + 1e-9


def test_the_standard_error_is_that_of_repeated_sampling_of_scenarios() -> None:
    """1,000 draws of 56 scenarios whose three tasks share a success rate: the mean se equals the spread of the means.

    The unclustered formula would be too small by a quarter here (design effect 1 + 2 * 0.4).
    """
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(56).astype(str), 3).tolist()
    estimates = [clustered_estimate(_correlated_draw(rng), clusters) for _ in range(1000)]
    spread = np.std([estimate.value for estimate in estimates])
    reported = np.mean([estimate.standard_error for estimate in estimates if estimate.standard_error is not None])
    naive = 100 * math.sqrt(0.25 / 168)
    assert reported == pytest.approx(spread, rel=0.06)
    assert naive < 0.8 * spread


def _correlated_draw(rng: np.random.Generator) -> np.ndarray:
    """Draw success of 56 x 3 tasks; rates from Beta(0.75, 0.75) correlate a scenario's tasks by 1 / 2.5 = 0.4."""
    rates = np.repeat(rng.beta(0.75, 0.75, size=56), 3)
    return (rng.random(168) < rates).astype(float)


def test_the_standard_error_agrees_with_a_bootstrap_over_scenarios() -> None:
    rng = np.random.default_rng(1)
    values = _correlated_draw(rng).reshape(56, 3)
    reported = clustered_estimate(values.ravel(), np.repeat(np.arange(56).astype(str), 3).tolist()).standard_error
    means = values[rng.integers(56, size=(4000, 56))].mean(axis=(1, 2))
    assert reported == pytest.approx(100 * means.std(), rel=0.06)
