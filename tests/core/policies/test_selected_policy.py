"""Selection, scores and weights that are joined are of one policy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.lineage import traced
from tasks.core.config.splits import TEST_SPLITS
from tasks.core.lineage.params_and_metrics import iteration_numbers
from tasks.core.policies.selected_policy import of_other_policies, read_selection_and_scores
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.study import RunLabel, read_finished_run
from tasks.record_lineage.recording import Pipeline, record_pipeline
from tests.finished_run import evaluation, scores, selection, weights_digest, write_weights
from tests.record_lineage.conftest import empty_store, finished, layout, own_stores, params, pipeline

__all__ = ["empty_store", "finished", "layout", "own_stores", "params", "pipeline"]

Change = Callable[[Layout], None]
OTHER = {"adapter_digest": weights_digest("other")}


def trained_anew(layout: Layout) -> None:
    """Another update of i002, say with another learning rate; nothing that follows it has run."""
    write_weights(layout.policy("i002"), "other")


def selected_anew(layout: Layout) -> None:
    """A selection of other weights, which lie there; neither split was played with them."""
    trained_anew(layout)
    write_document(layout.selection, selection(["i002"], 10.0, 5.0).model_copy(update=OTHER))


def half_scored(layout: Layout) -> None:
    """Scores of one split that are of another iteration."""
    write_document(layout.score("test_challenge"), scores("test_challenge", iteration="i003"))


CHANGES: list[tuple[Change, str]] = [
    (trained_anew, r"policy: the weights of i002 .* are not those that were evaluated"),
    (selected_anew, r"test_normal.json: the scores are of i002 .*, but i002 .* was selected; run `dvc repro`"),
    (half_scored, r"test_challenge.json: the scores are of i003 .*, but i002"),
]


def test_those_of_one_policy_are_read(layout: Layout) -> None:
    chosen, found = read_selection_and_scores(layout)
    assert chosen.iteration == "i002" and tuple(each.split for each in found) == TEST_SPLITS
    assert not [*of_other_policies(layout)]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_nobody_joins_those_of_several(pipeline: Pipeline, change: Change, message: str) -> None:
    change(pipeline.layout)
    study = RunLabel("loop", 0, "x")
    joins: list[Callable[[], object]] = [
        lambda: record_pipeline(pipeline),
        lambda: read_finished_run(pipeline.layout.root, study),
    ]
    for join in joins:
        with pytest.raises(ArtifactError, match=message):
            join()
    (pipeline.layout.root / ".dvc").mkdir()
    for room in ("flows", "tasks"):  # the code, by which lineage tells versions
        (pipeline.layout.root / room).symlink_to(Path(__file__).resolve().parents[3] / room)
    _, broken = traced("selected", pipeline.layout.root)
    assert any("evaluated on dev" in line or "was selected" in line for line in broken)


def test_a_policy_that_was_made_anew_has_no_dev_scores_until_it_has_played(layout: Layout) -> None:
    assert iteration_numbers(layout, "i002", [])["dev/tgc"] == 40.0
    trained_anew(layout)
    numbers = iteration_numbers(layout, "i002", [])
    assert numbers["rollouts/mean_return"] == 0.4 and not [name for name in numbers if name.startswith("dev/")]
    write_document(layout.evaluation("i002"), evaluation("i002", tgc=50.0).model_copy(update=OTHER))
    assert iteration_numbers(layout, "i002", [])["dev/tgc"] == 50.0
