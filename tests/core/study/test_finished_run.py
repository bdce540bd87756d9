"""A finished run as a study reads it."""

import yaml

from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.scores import Scores
from tasks.core.study.finished_run import FinishedRun, RunLabel, read_finished_run
from tests.finished_run import timings, training_budget


def test_a_run_brings_its_signs_of_a_collapse(finished_run: StageContext) -> None:
    assert [(w.rule, w.iteration) for w in _read(finished_run).record.warnings] == [("gradient_spike", 7)]


def test_a_run_brings_its_scores_at_the_training_budget_where_it_has_them(finished_run: StageContext) -> None:
    layout = finished_run.layout
    scored = read_document(layout.score("test_normal"), Scores)
    again = training_budget(scored, tgc=60.0)
    write_document(layout.score("test_normal"), scored.model_copy(update={"training_budget": again}))
    found = _read(finished_run)
    assert found.training_budget == {"test_normal": again}
    assert found.record.scores["test_normal"].tgc == scored.tgc


def _read(finished: StageContext) -> FinishedRun:
    layout, params = finished.layout, finished.inputs
    (layout.root / "params.yaml").write_text(yaml.safe_dump(params.model_dump(mode="json")))
    for key in params.dag.sampled:
        write_document(layout.timings(key), timings(generated_tokens=5))
    return read_finished_run(
        layout.root, RunLabel(method="loop", seed=0, experiment="e", command="c", wall_s=1.0, cpu_s=1.0)
    )
