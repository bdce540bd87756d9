"""The best of n on dev: by hand, as a property, and on simulated policies whose true score is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.evaluation.tgc_sgc import Outcome, sgc, tgc
from tasks.select_checkpoint import corrected_scores

Solved = list[list[bool]]
"""Whether a task was solved, by [scenario][task]."""


def played(solved: Solved) -> list[Outcome]:
    return [
        Outcome(f"s{scenario:02d}_{task}", f"s{scenario:02d}", 1, 0, bool(success))
        for scenario, tasks in enumerate(solved)
        for task, success in enumerate(tasks)
    ]


def test_two_lucky_policies_by_hand() -> None:
    """Two scenarios, each solved by another policy: a draw without one scenario chooses the policy that fails on it."""
    standing = [played([[True], [False]]), played([[False], [True]])]
    found = corrected_scores(standing, seed=0)
    assert found is not None
    assert (found.tgc.value, found.sgc.value) == (0, 0)
    assert (found.tgc.standard_error, found.sgc.standard_error) == (50, 50)


def test_a_tie_by_hand() -> None:
    """The first policy solves 1 + 1 of 2 x 2 tasks, the second 2 + 0.

    Without the second scenario the second policy is chosen, and solves 0 of it. Without the first scenario the first
    policy is chosen, with 1 of 2 tasks and no whole scenario. On all four tasks both have 2, and the second wins by its
    whole scenario.
    """
    even, uneven = played([[True, False], [True, False]]), played([[True, True], [False, False]])
    for standing in ([even, uneven], [uneven, even], [even, even, uneven]):
        found = corrected_scores(standing, seed=0)
        assert found is not None
        assert (found.tgc.value, found.sgc.value) == (25, 0)
        assert (found.tgc.standard_error, tgc(even).standard_error) == (50, 0)


grids = st.integers(2, 5).flatmap(
    lambda tasks: st.lists(st.lists(st.booleans(), min_size=tasks, max_size=tasks), min_size=2, max_size=6)
)


@given(grids, st.integers(1, 5))
@settings(max_examples=40)
def test_without_a_choice_nothing_is_corrected(solved: Solved, policies: int) -> None:
    found = corrected_scores([played(solved)] * policies, seed=3)
    assert found is not None
    for corrected, plain in ((found.tgc, tgc(played(solved))), (found.sgc, sgc(played(solved)))):
        assert corrected.value == pytest.approx(plain.value)
        assert corrected.standard_error == plain.standard_error


def test_one_scenario_gives_no_corrected_scores() -> None:
    assert corrected_scores([played([[True, False]])], seed=0) is None


def test_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="have not played the same dev tasks in the same evaluation runs"):
        corrected_scores([played([[True], [True]]), played([[True], [True], [True]])], seed=0)


def simulated(rng: np.random.Generator, worse: float) -> tuple[list[list[Outcome]], list[float]]:
    """Return 24 policies on 19 scenarios of 3 tasks, one rollout each, and the true TGC of each over all such tasks.

    The last policy is better by `worse` than the others.
    """
    likely = rng.beta(1.5, 1.5, (19, 3))
    lower = np.clip(likely - worse, 0, 1)
    everywhere = np.random.default_rng(99).beta(1.5, 1.5, 100_000)
    truth = [100 * float(np.clip(everywhere - worse, 0, 1).mean())] * 23 + [100 * float(everywhere.mean())]
    return [played((rng.random((19, 3)) < p).tolist()) for p in [lower] * 23 + [likely]], truth


@pytest.mark.parametrize(("worse", "luck"), [(0.0, 8), (0.1, 5), (0.3, 0)])
def test_the_plain_score_overstates_and_the_corrected_one_does_not(worse: float, luck: float) -> None:
    plain, corrected, covered = [], [], []
    for run in range(60):
        standing, truth = simulated(np.random.default_rng(run), worse)
        scores = [tgc(outcomes) for outcomes in standing]
        best = int(np.argmax([score.value for score in scores]))
        found = corrected_scores(standing, run)
        assert found is not None and found.tgc.standard_error is not None
        plain.append(scores[best].value - truth[best])
        corrected.append(found.tgc.value - truth[best])
        covered.append(abs(corrected[-1]) <= 2 * found.tgc.standard_error)
    assert np.mean(plain) > luck
    assert abs(np.mean(corrected)) < 2.5  # the mean of 60 has a standard error of about 1
    assert np.mean(covered) > 0.8
