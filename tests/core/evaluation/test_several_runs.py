"""pass^k and best@k: by hand, and against all choices of k runs."""

from itertools import combinations
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.evaluation.tgc_sgc import Outcome, best_at_k, paired_runs_scores, pass_hat_k, runs_scores, tgc


def played(verdicts: dict[str, str]) -> list[Outcome]:
    """Read {"a_1": "110"} as: the task 1 of scenario a succeeded in two of three runs."""
    return [
        Outcome(task, task.partition("_")[0], 1, run, verdict == "1")
        for task, row in verdicts.items()
        for run, verdict in enumerate(row)
    ]


def test_two_of_three_runs_by_hand() -> None:
    """Of the three pairs of runs one has both successes, and none has neither."""
    assert [pass_hat_k(2, 3, k) for k in (1, 2, 3)] == [2 / 3, 1 / 3, 0]
    assert [best_at_k(2, 3, k) for k in (1, 2, 3)] == [pytest.approx(2 / 3), 1, 1]


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.data())
def test_both_are_shares_of_all_choices_of_k_runs(verdicts: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(verdicts)))
    chosen = list(combinations(verdicts, k))
    assert pass_hat_k(sum(verdicts), len(verdicts), k) == pytest.approx(sum(map(all, chosen)) / len(chosen))
    assert best_at_k(sum(verdicts), len(verdicts), k) == pytest.approx(sum(map(any, chosen)) / len(chosen))


def test_means_over_tasks_by_hand() -> None:
    """At k = 2, tasks of 2, 1 and 0 successes have 1/3, 0, 0 and 1, 2/3, 0; at k = 3: 0, 0, 0 and 1, 1, 0.

    With one task in each scenario the standard error is that of a mean: of 1, 1, 0 it is sqrt(1/3 / 3).
    """
    outcomes = played({"a_1": "110", "b_1": "001", "c_1": "000"})
    found = runs_scores(outcomes)
    assert list(found) == ["1", "2", "3"]
    assert found["1"].pass_hat == found["1"].best_of == pytest.approx(tgc(outcomes).value)
    assert (found["2"].pass_hat, found["2"].best_of) == (pytest.approx(100 / 9), pytest.approx(500 / 9))
    assert (found["3"].pass_hat, found["3"].best_of) == (0, pytest.approx(200 / 3))
    assert (found["3"].pass_hat_se, found["3"].best_of_se) == (0, pytest.approx(100 / 3))


def test_tasks_of_a_scenario_are_one_cluster() -> None:
    """The sums of best@2 minus its mean 1/2 over the scenarios are 1 and -1: se = sqrt(2 * 2) / 4."""
    found = runs_scores(played({"a_1": "10", "a_2": "01", "b_1": "00", "b_2": "00"}))["2"]
    assert (found.best_of, found.best_of_se) == (50, pytest.approx(100 * sqrt(4) / 4))


def test_the_base_stands_beside_the_selected_policy() -> None:
    found = paired_runs_scores(played({"a_1": "11", "b_1": "10"}), played({"a_1": "10", "b_1": "00"}))["2"]
    assert (found.pass_hat, found.best_of) == (50, 100)
    assert (found.base_pass_hat, found.base_best_of) == (0, 50)
