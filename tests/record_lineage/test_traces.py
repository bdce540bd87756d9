"""Sampled rollouts as MLflow traces: which are drawn, what a trace contains, and that none is written twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Trace
from tokenizers import Tokenizer

from tasks.core.config.params import Params
from tasks.core.interfaces.stage import StageContext
from tasks.core.lineage.mlflow_store import open_store
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import dev_set, training_set, viewer_places
from tasks.core.records.schemas import ROLLOUTS
from tasks.core.records.tables import read_table, write_rows
from tasks.core.records.timings import Timings
from tasks.record_lineage import record_lineage, record_stage
from tasks.record_lineage.recording import Pipeline, record_pipeline
from tasks.record_lineage.traces import drawn_rows, traced_rollout

pytestmark = pytest.mark.whole_runs


def with_traces(pipeline: Pipeline, count: int) -> Pipeline:
    lineage = pipeline.params.lineage.model_copy(update={"traced_rollouts": count})
    return Pipeline(pipeline.layout, pipeline.params.model_copy(update={"lineage": lineage}))


def traces(pipeline: Pipeline, run_id: str | None = None) -> dict[str, Trace]:
    """Return all traces of a run, spans included, by their rollout."""
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    listed = store.client.search_traces(locations=[store.experiment_id], run_id=run_id, max_results=500)
    return {trace.info.tags["rollout"]: store.client.get_trace(trace.info.trace_id, display=False) for trace in listed}


def addresses(layout: Layout) -> dict[str, str]:
    """Return the addresses that the report's page reads from traces.js."""
    lines = layout.traces.read_text().splitlines()
    assert all(line.startswith("(window.loopline_traces=window.loopline_traces||{})[") for line in lines)
    return dict(json.loads(f"[{line.split('||{})[')[1][:-1].replace(']=', ', ')}]") for line in lines)


def check_a_trained_rollout(trace: Trace, layout: Layout) -> None:
    """Check the trace of a rollout that `conftest.write_training` wrote."""
    place = trace.info.tags["rollout"]
    decode = Tokenizer.from_file(str(layout.base_policy / "tokenizer.json")).decode
    whole, first, second = trace.data.spans
    assert [span.name for span in trace.data.spans] == [place.split("/")[1], "turn 1", "turn 2"]
    assert [span.parent_id for span in (first, second)] == [whole.span_id] * 2
    assert first.inputs == decode([5], skip_special_tokens=False)
    assert first.outputs == decode([6, 7], skip_special_tokens=False)
    assert second.inputs == decode([5, 6, 7, 8, 9], skip_special_tokens=False)
    figures = first.attributes
    assert (figures["mean_logprob"], figures["tokens"], figures["seconds"]) == (-1.0, 2, 1.5)
    assert (figures["api_calls"], second.attributes["api_calls"]) == (["bank.pay"], [])
    assert [span.status.status_code.value for span in (first, second)] == ["OK", "ERROR"]
    assert (first.start_time_ns, first.end_time_ns) == (1000 * 10**9, 1001.5 * 10**9)
    assert (trace.info.request_time, trace.info.execution_duration) == (1000 * 10**3, 2000)
    solved = place.endswith("/1")
    verdict = {one.name: one for one in trace.info.assessments}
    assert {name: one.feedback.value for name, one in verdict.items()} == {"success": solved, "return": float(solved)}
    missed = "passed: the answer is right" if solved else "failed: nothing else changed"
    assert verdict["success"].rationale == f"ended by completed\n{missed}"
    assert trace.info.tags["report"] == f"{(layout.report / 'index.html').as_uri()}#{place}"


def test_a_run_has_a_trace_of_each_drawn_rollout_and_the_page_knows_their_addresses(pipeline: Pipeline) -> None:
    recorded = record_pipeline(with_traces(pipeline, 1))
    found = traces(pipeline, recorded.run_id)
    sets = sorted(place.split("/")[0] for place in found)
    scored = [f"{split}%3A{policy}" for split in ("test_challenge", "test_normal") for policy in ("base", "selected")]
    assert sets == [
        "dev_i000",
        "dev_i002",
        "dev_i003",
        "i001",
        "i002",
        "i003",
        *(s.replace(":", "%3A") for s in scored),
    ]
    for place, trace in found.items():
        if place.startswith("i0"):
            check_a_trained_rollout(trace, pipeline.layout)
        else:
            assert all("seconds" not in span.attributes for span in trace.data.spans)
    experiment = open_store(pipeline.params.lineage, pipeline.layout.root).experiment_id
    page = f"http://127.0.0.1:5000/#/experiments/{experiment}/traces?selectedEvaluationId="
    assert addresses(pipeline.layout) == {place: page + trace.info.trace_id for place, trace in found.items()}


def test_a_models_page_has_the_traces_of_its_tests(pipeline: Pipeline) -> None:
    recorded = record_pipeline(with_traces(pipeline, 1))
    store = open_store(pipeline.params.lineage, pipeline.layout.root)
    run = f"source_run_id = '{recorded.run_id}'"
    (model,) = store.client.search_logged_models([store.experiment_id], run)
    listed = store.client.search_traces(locations=[store.experiment_id], model_id=model.model_id)
    places = {trace.info.tags["rollout"].partition("/")[0] for trace in listed}
    assert places == {"test_normal%3Aselected", "test_challenge%3Aselected"}


def test_recording_again_adds_no_trace_and_completes_what_was_cut_off(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("mlflow.tracing.client.TracingClient.log_spans", _crash)
        with pytest.raises(KeyboardInterrupt):
            record_pipeline(with_traces(pipeline, 1))
    first = record_pipeline(with_traces(pipeline, 1))
    assert record_pipeline(with_traces(pipeline, 1)) == first
    found = traces(pipeline)
    assert len(found) == 10
    assert {len(trace.info.assessments) for trace in found.values()} == {2}
    assert {len(trace.data.spans) for trace in found.values() if trace.info.tags["rollout"].startswith("i0")} == {3}


def test_a_rollout_that_was_sampled_anew_has_a_trace_of_its_own(pipeline: Pipeline) -> None:
    traced, layout = with_traces(pipeline, 9), pipeline.layout
    record_pipeline(traced)
    before, path = addresses(layout), layout.rollouts("i001")
    rows = read_table(path, ROLLOUTS).to_pylist()
    rows[0]["token_ids"] = [*rows[0]["token_ids"][:-1], rows[0]["token_ids"][-1] - 1]
    write_rows(path, rows, ROLLOUTS)
    record_pipeline(traced)
    after = addresses(layout)
    place = viewer_places("i001", read_table(path, ROLLOUTS))[0]
    assert {changed for changed in after if after[changed] != before[changed]} == {place}
    store = open_store(pipeline.params.lineage, layout.root)
    shown = store.client.get_trace(after[place].rpartition("=")[2], display=False)
    decode = Tokenizer.from_file(str(layout.base_policy / "tokenizer.json")).decode
    assert shown.data.spans[-1].outputs == decode(rows[0]["token_ids"][-1:], skip_special_tokens=False)


def _crash(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_a_watched_run_has_its_traces_after_each_stage(layout: Layout, params: Params) -> None:
    for stage in ("update_policy", "evaluate_policy"):
        record_stage(StageContext(layout, params, key="i002"), stage)
    pipeline = Pipeline(layout, params)
    live = traces(pipeline)
    assert sorted(place.split("/")[0] for place in live) == ["dev_i002", "i002"]
    record_pipeline(pipeline)
    assert live.keys() < traces(pipeline).keys()


def test_no_traces_where_the_knob_is_0(pipeline: Pipeline) -> None:
    pipeline.layout.traces.write_text("of an earlier run")
    record_pipeline(with_traces(pipeline, 0))
    assert traces(pipeline) == {}
    assert not pipeline.layout.traces.exists()


def test_a_store_that_accepts_no_traces_loses_no_run(
    layout: Layout, params: Params, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "files").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with pytest.warns(UserWarning, match=r"no traces of rollouts: .*traced_rollouts: 0"):
        record_lineage(StageContext(layout, params))
    assert layout.lineage.exists()


def test_the_draw_depends_on_seed_and_set_alone_and_takes_as_many_of_each_policy(layout: Layout) -> None:
    table = dev_set(layout, "i000").read()
    assert drawn_rows(table, 3, 0, "a") == drawn_rows(table, 3, 0, "a")
    draws = {tuple(drawn_rows(table, 3, seed, name)) for seed in range(4) for name in "abcd"}
    assert len(draws) > 4
    assert all(len(draw) == 3 and list(draw) == sorted(set(draw)) for draw in draws)
    assert drawn_rows(table, 99, 0, "a") == list(range(len(table)))


def test_a_turn_that_broke_the_world_has_its_text_and_a_clock_too_short_is_not_used(layout: Layout) -> None:
    rollouts = training_set(layout, "i001")
    table = rollouts.read()
    rows: list[dict[str, Any]] = table.to_pylist()
    rows[0]["turns"] = rows[0]["turns"][:1]
    broken = table.from_pylist(rows, schema=table.schema)
    decoder = Tokenizer.from_file(str(layout.base_policy / "tokenizer.json"))
    place = viewer_places("i001", broken)[0]
    traced = traced_rollout(broken, 0, place, decoder, [10.0, 11.0], otherwise=5.0)
    assert [(turn.began, turn.ended) for turn in traced.turns] == [(5.0, 5.0)] * 2
    assert "api_calls" not in traced.turns[1].figures
    assert traced.turns[1].figures == {"turn": 2, "tokens": 1, "mean_logprob": -0.25}


def test_the_clocks_are_written_next_to_the_rollouts(layout: Layout) -> None:
    assert set(read_document(layout.timings("i001"), Timings).clocks) == {
        "train_1#0",
        "train_1#1",
        "train_2#0",
        "train_2#1",
    }
