"""A rollout as MLflow's entities: spans, feedback and a trace. Imports MLflow: import this module late.

They are made as a whole and not through `mlflow.start_span`. That sends from a background thread, where a failure is
only a line in a log, and draws its ids at random, so that the same rollout would be written twice.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mlflow.entities import (
    AssessmentSource,
    Feedback,
    Span,
    SpanType,
    TraceInfo,
    TraceLocation,
    TraceState,
)
from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey, TraceTagKey
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from tasks.core.evaluation.scored_rows import rationale
from tasks.record_lineage.tracing.traced_rollout import TracedRollout, TracedTurn


def trace_id(run_id: str, traced: TracedRollout) -> str:
    """Return the id of the trace of one rollout of a run, the same each time it is written.

    A rollout that was sampled anew has another id: the same parameters sample other tokens on another machine.
    """
    return f"tr-{_digest(run_id, traced.place, traced.digest)[:32]}"


def spans_of(traced: TracedRollout, run_id: str) -> list[Span]:
    """Return one span for the episode, and below it one for each turn."""
    owner = trace_id(run_id, traced)
    ids = [int(_digest(owner, str(number))[:16], 16) for number in range(len(traced.turns) + 1)]
    contexts = [SpanContext(int(owner[3:], 16), span_id, is_remote=False, trace_flags=TraceFlags(1)) for span_id in ids]
    first, last = traced.turns[0], traced.turns[-1]
    facts = {name: value for name, value in traced.row.items() if isinstance(value, str | int | float)}
    whole = _span(
        traced.row["task_id"],
        SpanType.AGENT,
        (contexts[0], None),
        (first.began, last.ended),
        _content(owner, first.prompt_tail, last.text) | facts,
        failed=traced.is_void,
    )
    turns = [
        _turn_span(owner, turn, contexts[0], context) for turn, context in zip(traced.turns, contexts[1:], strict=True)
    ]
    return [whole, *turns]


def trace_info(
    traced: TracedRollout,
    run_id: str,
    experiment_id: str,
    world: str,
    tags: Mapping[str, str],
    model_id: str | None = None,
) -> TraceInfo:
    """Return the trace's entry in MLflow's list, with the verdict as feedback on it; `model_id`: whose play it is."""
    owner, row = trace_id(run_id, traced), traced.row
    source = AssessmentSource(source_type="CODE", source_id=world)
    verdict = {"success": row["success"], "return": row["return"]}
    first, last = traced.turns[0], traced.turns[-1]
    of_model = {TraceMetadataKey.MODEL_ID: model_id} if model_id is not None else {}
    return TraceInfo(
        trace_id=owner,
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=int(first.began * 1e3),
        execution_duration=int((last.ended - first.began) * 1e3),
        state=TraceState.ERROR if traced.is_void else TraceState.OK,
        request_preview=first.prompt_tail,
        response_preview=last.text,
        trace_metadata={TraceMetadataKey.SOURCE_RUN: run_id, **of_model},
        tags={TraceTagKey.TRACE_NAME: traced.place, "rollout": traced.place, "end_reason": row["end_reason"], **tags},
        assessments=[_feedback(owner, name, value, source, rationale(traced.row)) for name, value in verdict.items()],
    )


def _feedback(owner: str, name: str, value: float, source: AssessmentSource, rationale: str) -> Feedback:
    feedback = Feedback(name=name, value=value, source=source, trace_id=owner, rationale=rationale)
    feedback.assessment_id = f"a-{_digest(owner, name)[:32]}"
    return feedback


def _turn_span(owner: str, turn: TracedTurn, parent: SpanContext, context: SpanContext) -> Span:
    return _span(
        f"turn {turn.figures['turn']}",
        SpanType.LLM,
        (context, parent),
        (turn.began, turn.ended),
        _content(owner, turn.prompt_tail, turn.text) | turn.figures,
        failed=turn.failed,
    )


def _content(owner: str, before: str, answer: str) -> dict[str, Any]:
    return {
        SpanAttributeKey.REQUEST_ID: owner,
        SpanAttributeKey.INPUTS: before,
        SpanAttributeKey.OUTPUTS: answer,
    }


def _span(
    name: str,
    kind: str,
    contexts: tuple[SpanContext, SpanContext | None],
    seconds: tuple[float, float],
    attributes: dict[str, Any],
    *,
    failed: bool,
) -> Span:
    """Return a span, with every attribute as JSON, as MLflow keeps it."""
    context, parent = contexts
    began, ended = (int(at * 1e9) for at in seconds)
    kept = {key: json.dumps(value) for key, value in {SpanAttributeKey.SPAN_TYPE: kind, **attributes}.items()}
    status = Status(StatusCode.ERROR if failed else StatusCode.OK)
    return Span(ReadableSpan(name, context, parent, attributes=kept, status=status, start_time=began, end_time=ended))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
