"""The selected policy's test rollouts as episodes of an evaluation dataset. Pure, but for decoding tokens."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.evaluation.scored_rows import Row, rationale
from tasks.core.lineage.evaluation_dataset import JudgedEpisode
from tasks.core.records.schemas import SELECTED_POLICY, VOID_REASONS
from tasks.record_lineage.tracing.traced_rollout import Decoder


def judged_rollouts(table: pa.Table, world: str, decoder: Decoder) -> Iterator[JudgedEpisode]:
    """Yield the selected policy's rollouts of a table of SCORED_ROLLOUTS, but for those that the world broke."""
    ours = pc.equal(table["policy"], SELECTED_POLICY)
    broken = pc.is_in(table["end_reason"], pa.array(sorted(VOID_REASONS)))
    for row in table.filter(pc.and_not(ours, broken)).to_pylist():
        yield _judged(row, world, decoder)


def _judged(row: Row, world: str, decoder: Decoder) -> JudgedEpisode:
    ids, turn_index = np.asarray(row["token_ids"]), np.asarray(row["turn_index"])
    last = int(turn_index.max(initial=-1))
    first = int(np.argmax(turn_index >= 0)) if last >= 0 else len(ids)
    answer = ids[turn_index == last] if last >= 0 else ids[:0]
    return JudgedEpisode(
        world=world,
        run=row["evaluation_run"],
        prompt=decoder.decode(ids[:first].tolist(), skip_special_tokens=False),
        answer=decoder.decode(answer.tolist(), skip_special_tokens=True),
        turns=last + 1,
        score=row["return"],
        rationale=rationale(row),
        **{name: row[name] for name in ("split", "task_id", "scenario_id", "difficulty", "end_reason", "success")},
    )
