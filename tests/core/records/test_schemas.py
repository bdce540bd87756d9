"""The parquet formats, pinned: a change of a schema is a change of the golden file, and so of what others read."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tasks.core.records import schemas
from tasks.core.records.tables import write_rows

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["TASKS", "ROLLOUTS", "TRAINING_BATCH", "SCORED_ROLLOUTS"])
def test_the_written_schema_is_the_golden_one(name: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "t.parquet", [], getattr(schemas, name))
    written = pq.read_schema(tmp_path / "t.parquet")
    golden = (GOLDEN / f"{name.lower()}.schema.txt").read_text()
    assert "".join(f"{field.name}: {field.type}\n" for field in written) == golden


def test_rows_are_named_by_their_key() -> None:
    assert schemas.key_columns(schemas.TASKS) == ["task_id"]
    assert schemas.key_columns(schemas.TRAINING_BATCH) == ["task_id", "rollout_index", "pair"]
    assert schemas.key_columns(schemas.SCORED_ROLLOUTS) == ["task_id", "rollout_index", "policy", "evaluation_run"]
