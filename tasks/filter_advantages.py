"""Stage filter_advantages@i: rollouts.parquet -> training_batch.parquet and advantages.json."""

import logging
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pyarrow as pa

from tasks.core.advantages.groups import AdvantageResult, compute_advantages
from tasks.core.advantages.outcomes import Outcomes, most_frequent_fault, read_outcomes
from tasks.core.config.stage_inputs import AdvantageInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS, TRAINING_BATCH
from tasks.core.records.tables import read_table, write_table
from tasks.core.records.training import ResponseStats
from tasks.core.seeding import derive_seed

_log = logging.getLogger(__name__)
NGRAM = 4
Response = Sequence[int]
"""The ids of all tokens that the policy sampled in one rollout, in their order."""


def response_stats(responses: Sequence[Response], task_ids: Sequence[str]) -> ResponseStats:
    """Return figures of N >= 1 finished rollouts; without any group of two or more, all responses count as distinct."""
    groups: dict[str, list[Response]] = {}
    for task, response in zip(task_ids, responses, strict=True):
        groups.setdefault(task, []).append(response)
    shares = [distinct_share(group) for group in groups.values() if len(group) > 1]
    return ResponseStats(
        length=fmean(len(response) for response in responses),
        repetition=fmean(repetition(response) for response in responses),
        distinct=fmean(shares) if shares else 1.0,
    )


def repetition(response: Response) -> float:
    """Return 1 - different n-grams / n-grams, n = 4: seq-rep-4 (Welleck et al., arXiv 1908.04319); 0 without any."""
    ngrams = [tuple(response[start : start + NGRAM]) for start in range(len(response) - NGRAM + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def distinct_share(group: Sequence[Response]) -> float:
    """Return different responses / responses of K >= 1 rollouts of one task: 1/K if they are all the same."""
    return len(set(map(tuple, group))) / len(group)


def filter_advantages(context: StageContext[AdvantageInputs]) -> None:
    """Keep the rollouts of iteration `context.key` that carry a signal. An empty batch is written too, and logged.

    Raises ArtifactError when the rollouts are missing or break their schema, or when every one of them is void.
    """
    path = context.layout.rollouts(context.key)
    rollouts = read_table(path, ROLLOUTS)
    outcomes = read_outcomes(rollouts)
    try:
        seed = derive_seed(context.inputs.seed, "filter_advantages", context.key)
        result = compute_advantages(outcomes, context.inputs.advantages, seed)
    except ValueError as error:
        fault = most_frequent_fault(context.layout.timings(context.key))
        raise ArtifactError(f"{path}: {error}{fault}") from None
    if result.summary.note:
        _log.warning("%s: %s", context.key, result.summary.note)
    write_table(context.layout.training_batch(context.key), _batch(rollouts, result), TRAINING_BATCH)
    summary = result.summary.model_copy(update={"responses": _responses(rollouts, outcomes)})
    write_document(context.layout.advantage_summary(context.key), summary)


def _responses(rollouts: pa.Table, outcomes: Outcomes) -> ResponseStats:
    rows = np.flatnonzero(outcomes.finished)
    finished = rollouts.select(["token_ids", "policy_mask"]).take(pa.array(rows))
    cells = zip(*(finished[name].to_pylist() for name in finished.column_names), strict=True)
    sampled = [[token for token, is_own in zip(ids, mask, strict=True) if is_own] for ids, mask in cells]
    return response_stats(sampled, [outcomes.task_ids[row] for row in rows.tolist()])


def _batch(rollouts: pa.Table, result: AdvantageResult) -> pa.Table:
    rows = pa.array(np.flatnonzero(result.kept), pa.int64())
    columns = [name for name in TRAINING_BATCH.names if name in rollouts.column_names]
    kept, labels = rollouts.select(columns).take(rows), result.labels
    kept = kept.append_column("advantage", pa.array(labels.advantages[result.kept], pa.float64()))
    if labels.turn_advantages is not None:
        by_turn = [labels.turn_advantages[row] for row in np.flatnonzero(result.kept)]
        kept = kept.append_column("turn_advantages", pa.array(by_turn, pa.large_list(pa.float64())))
    if labels.pairs is not None:
        kept = kept.append_column("pair", pa.array(labels.pairs[result.kept], pa.int32()))
    return kept
