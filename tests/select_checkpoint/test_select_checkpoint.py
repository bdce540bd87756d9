"""Checkpoint selection: the order of the candidates, the files read, and refused ones."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.selected_policy import require_evaluated_policy
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Candidate, Evaluation
from tasks.select_checkpoint import best, candidates


def candidate(iteration: int, tgc: float, sgc: float, digest: str = "0" * 64) -> Candidate:
    return Candidate(iteration=f"i{iteration:03d}", dev_tgc=tgc, dev_sgc=sgc, adapter_digest=digest)


def evaluation(key: str, tgc: float = 50.0) -> Evaluation:
    return Evaluation(
        iteration=key,
        adapter_digest="0" * 64,
        tgc=tgc,
        sgc=20.0,
        tgc_se=1.0,
        sgc_se=1.0,
        mean_return=0.5,
        tasks=60,
        scenarios=20,
        seeds=(1,),
        per_difficulty={},
        void_rollouts=0,
    )


def test_the_best_tgc_wins_then_sgc_then_the_earlier_iteration() -> None:
    assert best([candidate(0, 40, 90), candidate(2, 50, 10), candidate(4, 45, 20)]).iteration == "i002"
    assert best([candidate(2, 50, 10), candidate(4, 50, 30), candidate(6, 50, 20)]).iteration == "i004"
    assert best([candidate(10, 50, 10), candidate(2, 50, 10)]).iteration == "i002"


def test_the_base_may_win() -> None:
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
    for key, tgc in (("i000", 40.0), ("i002", 60.0), ("i004", 99.0)):  # i004 is left over from a longer run
        write_document(layout.evaluation(key), evaluation(key, tgc))
    standing = candidates(layout, ["i000", "i002"])
    assert [found.iteration for found in standing] == ["i000", "i002"]
    assert (best(standing).iteration, best(standing).dev_tgc, best(standing).dev_sgc) == ("i002", 60.0, 20.0)


def test_a_missing_evaluation_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"i000\.json: missing; run the stage"):
        candidates(Layout(tmp_path), ["i000"])


def test_an_evaluation_of_another_iteration_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    write_document(layout.evaluation("i002"), evaluation("i004"))
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
