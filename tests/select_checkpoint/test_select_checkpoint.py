"""Checkpoint selection: the order of the candidates, refused files, and the best of n on dev corrected for luck."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tasks.core.evaluation.tgc_sgc import Outcome, sgc, tgc
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.selected_policy import require_evaluated_policy
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Candidate
from tasks.select_checkpoint import best, candidates, corrected_scores
from tests.finished_run import evaluation


def candidate(iteration: int, tgc: float, sgc: float, digest: str = "0" * 64) -> Candidate:
    return Candidate(iteration=f"i{iteration:03d}", dev_tgc=tgc, dev_sgc=sgc, adapter_digest=digest)


def test_the_best_tgc_wins_then_sgc_then_the_earlier_iteration() -> None:
    assert best([candidate(0, 40, 90), candidate(2, 50, 10), candidate(4, 45, 20)]).iteration == "i002"
    assert best([candidate(2, 50, 10), candidate(4, 50, 30), candidate(6, 50, 20)]).iteration == "i004"
    assert best([candidate(10, 50, 10), candidate(2, 50, 10)]).iteration == "i002"
    assert best([candidate(0, 40, 10), candidate(2, 30, 10)]).iteration == "i000"


scored = st.tuples(st.sampled_from([0.0, 50.0, 100.0]), st.sampled_from([0.0, 50.0]))


@given(st.lists(scored, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_no_candidate_beats_the_winner_and_order_does_not_matter(
    scores: list[tuple[float, float]], rng: object
) -> None:
    standing = [candidate(index, tgc, sgc) for index, (tgc, sgc) in enumerate(scores)]
    chosen = best(standing)
    for other in standing:
        ours, theirs = (chosen.dev_tgc, chosen.dev_sgc), (other.dev_tgc, other.dev_sgc)
        assert ours > theirs or (ours == theirs and chosen.iteration <= other.iteration)
    assert best(rng.sample(standing, len(standing))) == chosen  # type: ignore[attr-defined]


def test_only_the_evaluated_iterations_are_read(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for key, dev_tgc in (("i000", 40.0), ("i002", 60.0), ("i004", 99.0)):  # i004 is left over from a longer run
        write_document(layout.evaluation(key), evaluation(key, dev_tgc, 20.0))
    standing = candidates(layout, ["i000", "i002"])
    assert [found.iteration for found in standing] == ["i000", "i002"]
    assert (best(standing).iteration, best(standing).dev_tgc, best(standing).dev_sgc) == ("i002", 60.0, 20.0)


def test_a_missing_evaluation_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"i000\.json: missing; run the stage"):
        candidates(Layout(tmp_path), ["i000"])


def test_an_evaluation_of_another_iteration_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    write_document(layout.evaluation("i002"), evaluation("i004", 50.0))
    with pytest.raises(ArtifactError, match=r"i002\.json: iteration: i004, expected i002"):
        candidates(layout, ["i002"])


def test_altered_weights_are_noticed(tmp_path: Path) -> None:
    weights = tmp_path / "adapter_model.safetensors"
    save_file({"a": torch.zeros(2)}, weights)
    chosen = candidate(2, 50, 10, policy_digest(tmp_path))
    require_evaluated_policy(tmp_path, chosen)
    save_file({"a": torch.ones(2)}, weights)
    with pytest.raises(ArtifactError, match=r"the weights of i002 .* are not those that were evaluated on dev"):
        require_evaluated_policy(tmp_path, chosen)


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
