"""Rollouts as traces in MLflow, written from their tables, so that playing never waits. Import it late: it has MLflow.

They are made as a whole and not through `mlflow.start_span`. That sends from a background thread, where a failure is
only a line in a log, and draws its ids at random, so that the same rollout would be written twice.
"""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from mlflow.entities import AssessmentSource, Feedback, Span, SpanType, Trace, TraceInfo, TraceLocation, TraceState
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList
from mlflow.tracing.client import TracingClient
from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey, TraceTagKey
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from tokenizers import Tokenizer

from tasks.core.config.params import Params
from tasks.core.evaluation.scored_rows import rationale
from tasks.core.lineage.mlflow_store import Store
from tasks.core.processes.addresses import without_credentials
from tasks.core.records.documents import read_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import RolloutSet, script, viewer_places
from tasks.core.records.schemas import SELECTED_POLICY, SEQUENCES, TOKEN_COLUMNS, VOID_REASONS
from tasks.core.records.timings import Timings
from tasks.core.seeding import derive_seed

PROMPT_TAIL = 256
"""Tokens before a turn that its span shows."""


@dataclass(frozen=True)
class TracedTurn:
    """One assistant turn."""

    prompt_tail: str
    text: str
    began: float
    """Seconds since the epoch, as `ended`: from the request for the turn to the world's answer."""
    ended: float
    failed: bool
    figures: dict[str, Any]
    """Further facts by name; unknown facts are left out."""


@dataclass(frozen=True)
class TracedRollout:
    """One rollout, with the verdict on it."""

    place: str
    """The rollout's place in the report (`rollout_sets.viewer_places`)."""
    row: dict[str, Any]
    """The rollout's columns, except those with a value per token."""
    turns: tuple[TracedTurn, ...]
    digest: str
    """SHA-256 of its tokens and the verdict on it."""

    @property
    def is_void(self) -> bool:
        return self.row["end_reason"] in VOID_REASONS


def drawn_rows(table: pa.Table, count: int, seed: int, name: str) -> list[int]:
    """Draw at most `count` rows of each policy in the set `name`, without replacement; return them in their order."""
    policies = table["policy"].to_pylist() if "policy" in table.column_names else [""] * len(table)
    drawn = []
    for policy in sorted(set(policies)):
        rows = [row for row, player in enumerate(policies) if player == policy]
        drawn += Random(derive_seed(seed, "traces", name, policy)).sample(rows, min(count, len(rows)))
    return sorted(drawn)


def traced_rollout(
    table: pa.Table, row: int, place: str, decoder: Tokenizer, clock: Sequence[float], otherwise: float
) -> TracedRollout:
    """Return row `row` of a table of rollouts as a traced rollout.

    `clock` holds the times at which the episode was opened and each turn was answered. Where it does not, all turns
    begin and end at the time `otherwise`, and have no `seconds`.
    """
    per_token = ("token_ids", "turn_index", "engine_logprobs")
    ids, turn_index, logprobs = (table[name][row].values.to_numpy() for name in per_token)
    begins = table[SEQUENCES][row].as_py()
    facts = table.drop([*TOKEN_COLUMNS, SEQUENCES]).slice(row, 1).to_pylist()[0]
    count = int(turn_index.max(initial=-1)) + 1
    measured = len(clock) > count
    times = list(pairwise(clock)) if measured else [(otherwise, otherwise)] * count
    turns = []
    for turn in range(count):
        positions = np.flatnonzero(turn_index == turn)
        if not len(positions):  # an engine may sample nothing
            continue
        start, (began, ended) = int(positions[0]), times[turn]
        figures = _figures(facts, turn) | {"tokens": len(positions), "mean_logprob": float(logprobs[positions].mean())}
        begin = max(begin for begin in begins if begin <= start)
        tail = decoder.decode(ids[max(begin, start - PROMPT_TAIL) : start].tolist(), skip_special_tokens=False)
        text = decoder.decode(ids[positions].tolist(), skip_special_tokens=False)
        seconds = {"seconds": round(ended - began, 3)} if measured else {}
        failed = bool(figures.pop("failed", False))
        turns.append(TracedTurn(tail, text, began, ended, failed, {"turn": turn + 1, **figures, **seconds}))
    return TracedRollout(place, facts, tuple(turns), _rollout_digest(ids, facts))


def _rollout_digest(ids: np.ndarray, facts: dict[str, Any]) -> str:
    verdict = [facts[name] for name in ("return", "success", "end_reason", "tests_passed", "tests_failed")]
    return hashlib.sha256(ids.astype("<i8").tobytes() + json.dumps(verdict).encode()).hexdigest()


def _figures(facts: dict[str, Any], turn: int) -> dict[str, Any]:
    """Return the world's answer to a turn; nothing for a turn over which the world broke."""
    if turn >= len(facts["turns"]):
        return {}
    named = {"turn_rewards": "reward", "turn_progress": "progress"}
    added = {name: facts[column][turn] for column, name in named.items() if column in facts}
    return {**facts["turns"][turn], **added}


_REMEDY = (
    "they need MLflow 3.4 or newer on a database; `python -m tasks.record_lineage` writes what is missing, "
    "lineage.traced_rollouts: 0 asks for none"
)


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
        _span(
            f"turn {turn.figures['turn']}",
            SpanType.LLM,
            (context, contexts[0]),
            (turn.began, turn.ended),
            _content(owner, turn.prompt_tail, turn.text) | turn.figures,
            failed=turn.failed,
        )
        for turn, context in zip(traced.turns, contexts[1:], strict=True)
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


def _content(owner: str, before: str, answer: str) -> dict[str, Any]:
    return {SpanAttributeKey.REQUEST_ID: owner, SpanAttributeKey.INPUTS: before, SpanAttributeKey.OUTPUTS: answer}


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


@dataclass(frozen=True)
class TraceRecorder:
    """The traces of one MLflow run."""

    store: Store
    run_id: str
    layout: Layout
    params: Params
    model_id: str | None = None
    """The run's logged model, on whose page the traces of the selected policy's test rollouts stand."""

    def record(self, sets: Iterable[RolloutSet]) -> dict[str, str]:
        """Write the traces of the drawn rollouts of `sets` that MLflow does not hold yet.

        Returns the address of each drawn rollout's trace in MLflow's pages, by the rollout's place in the report. A
        store that accepts no traces causes a warning; the run is recorded all the same. Raises ArtifactError.
        """
        try:
            return self._record(sets) if self.params.lineage.traced_rollouts else {}
        except (MlflowException, NotImplementedError) as error:
            reason = without_credentials(str(error).strip().partition("\n")[0][:300])
            warnings.warn(f"no traces of rollouts: {reason} ({_REMEDY})", stacklevel=2)
            return {}

    def _record(self, sets: Iterable[RolloutSet]) -> dict[str, str]:
        held, traces = self._held(), dict[str, str]()
        tokenizer = Tokenizer.from_file(str(self.layout.base_policy / "tokenizer.json"))
        for rollouts in sets:
            drawn = [traced for traced in self._drawn(rollouts, tokenizer) if traced.turns]
            self._write([traced for traced in drawn if trace_id(self.run_id, traced) not in held], rollouts)
            traces |= {traced.place: trace_id(self.run_id, traced) for traced in drawn}
        return {place: self.store.page(trace) for place, trace in traces.items()}

    def _drawn(self, rollouts: RolloutSet, tokenizer: Tokenizer) -> Iterator[TracedRollout]:
        table = rollouts.read(trusted=True)  # validation takes longer than all else here
        places, played = viewer_places(rollouts.name, table), rollouts.path.stat().st_mtime
        timings = rollouts.timings
        clocks = read_document(timings, Timings).clocks if timings is not None and timings.exists() else {}
        for row in drawn_rows(table, self.params.lineage.traced_rollouts, self.params.seed, rollouts.name):
            name = f"{table['task_id'][row]}#{table['rollout_index'][row]}"
            yield traced_rollout(table, row, places[row], tokenizer, clocks.get(name, ()), played)

    def _write(self, drawn: list[TracedRollout], rollouts: RolloutSet) -> None:
        if not drawn:
            return
        client = TracingClient(self.store.uri)
        page = (self.layout.report / "index.html").as_uri()
        for traced in drawn:
            tags = {"rollouts": rollouts.label, "report": f"{page}#{traced.place}"}
            model = self.model_id if traced.row.get("policy") == SELECTED_POLICY else None
            info = trace_info(traced, self.run_id, self.store.experiment_id, self.params.world.name, tags, model)
            client.start_trace(info)
        spans = [span for traced in drawn for span in spans_of(traced, self.run_id)]
        client.log_spans(self.store.experiment_id, spans)

    def _held(self) -> set[str]:
        """Return ids of the run's traces that have their spans, which MLflow tags with the spans' location."""
        held, token = set[str](), None
        while True:
            page: PagedList[Trace] = self.store.client.search_traces(
                locations=[self.store.experiment_id],
                run_id=self.run_id,
                include_spans=False,
                max_results=500,
                page_token=token,
            )
            held |= {trace.info.trace_id for trace in page if TraceTagKey.SPANS_LOCATION in trace.info.tags}
            token = page.token
            if not token:
                return held


def write_addresses(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the script from which the report's page takes the addresses; without traces, write none."""
    if addresses:
        with replacing(path) as temporary:
            lines = (script("loopline_traces", viewer_place, address) for viewer_place, address in addresses.items())
            temporary.write_text("".join(lines), encoding="utf-8")
    else:
        path.unlink(missing_ok=True)
