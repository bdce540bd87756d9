"""Content of artifacts: what counts, and what of it differs."""

from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import BaseModel

from tasks.core.records.content import content, content_digest
from tasks.core.records.document_kinds import DOCUMENTS, document_kind, holds_clocks
from tasks.core.records.documents import Document
from tasks.core.records.marks import CLOCK, LEFT_OUT, unmarked_fields
from tasks.core.records.training import Metrics, Timings

TABLE = "data/some.parquet"


def write(root: Path, table: pa.Table, **how: Any) -> None:
    """Write a table where `content_digest` finds it."""
    (root / "data").mkdir(exist_ok=True)
    pq.write_table(table, root / TABLE, **how)


def of_rows() -> pa.Table:
    return pa.table(
        {
            "name": ["a", "b", "c"],
            "numbers": pa.array([[1.0, 2.0], [], [3.0]], pa.large_list(pa.float32())),
            "words": [["x", "yz"], ["xy", "z"], []],
            "turns": [[{"failed": True, "calls": ["p"]}], [], [{"failed": False, "calls": []}]],
        }
    )


def test_the_same_rows_have_one_digest_however_they_are_written(tmp_path: Path) -> None:
    write(tmp_path, of_rows())
    first = content_digest(tmp_path, TABLE)
    write(tmp_path, pa.concat_tables([of_rows()[:1], of_rows()[1:]]), compression="gzip", row_group_size=2)
    assert content_digest(tmp_path, TABLE) == first


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("name", 1, "B"),
        ("numbers", 0, [1.0, 2.0000002]),
        ("numbers", 1, [0.0]),
        ("words", 0, ["xy", "z"]),
        ("turns", 2, [{"failed": True, "calls": []}]),
        ("turns", 0, [{"failed": True, "calls": ["q"]}]),
    ],
)
def test_a_change_is_in_its_column_and_its_row(tmp_path: Path, column: str, row: int, value: object) -> None:
    write(tmp_path, of_rows())
    before = content_digest(tmp_path, TABLE)
    rows = of_rows().to_pylist()
    rows[row][column] = value
    write(tmp_path, pa.Table.from_pylist(rows, schema=of_rows().schema))
    after = content_digest(tmp_path, TABLE)
    assert before is not None and after is not None and before.rows and after.rows
    assert before.digest != after.digest
    assert [name for name in before.parts if before.parts[name] != after.parts[name]] == [column]
    pairs = [(before.rows[at : at + 8], after.rows[at : at + 8]) for at in range(0, 24, 8)]
    assert [number for number, (one, other) in enumerate(pairs) if one != other] == [row]


@given(arrays(np.float32, st.integers(0, 5)), arrays(np.float32, st.integers(0, 5)))
def test_two_lists_are_equal_where_their_bits_are(one: Any, other: Any) -> None:
    kind = pa.list_(pa.float32())
    cells = [_cells_of(pa.array([each.tolist()], kind)) for each in (one, other)]
    assert (cells[0] == cells[1]) == (one.tobytes() == other.tobytes())


def _cells_of(column: pa.Array) -> list[bytes]:
    from tasks.core.records.content import _cells

    return _cells(column)


def test_a_marked_column_counts_for_nothing(tmp_path: Path) -> None:
    schema = pa.schema([("name", pa.string()), pa.field("ended_at", pa.float64(), metadata={CLOCK: ""})])
    for moment in (1.0, 2.0):
        write(tmp_path, pa.table({"name": ["a"], "ended_at": [moment]}, schema=schema))
        assert list(content(tmp_path / TABLE, TABLE) or {}) == ["name"]


def test_clocks_are_left_out_of_a_document_by_their_mark() -> None:
    clocks = {"tokens_per_s", "update_s"}
    named = dict.fromkeys(Metrics.model_fields, 1)
    assert named.keys() - unmarked_fields(Metrics, named).keys() == clocks
    assert unmarked_fields(Timings, dict.fromkeys(Timings.model_fields, 1)) == {"rollouts": 1}


def test_only_measured_artifacts_hold_clocks() -> None:
    held = {kind for kind in DOCUMENTS.values() if kind is not None and holds_clocks(_example(kind))}
    assert held == {Metrics, Timings}
    assert document_kind("data/iterations/i003/rollouts.parquet") is None


def _example(kind: type[BaseModel]) -> str:
    pattern = next(path for path, each in DOCUMENTS.items() if each is kind)
    return pattern.as_posix().replace("*", "i003")


def test_documents_inside_documents_have_no_marks() -> None:
    """`unmarked_fields` looks at a document's own fields alone."""
    inside = {found for kind in DOCUMENTS.values() for found in _inside(kind)}
    assert [
        kind for kind in inside if any(set(field.metadata) & set(LEFT_OUT) for field in kind.model_fields.values())
    ] == []


def _inside(kind: Any) -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    for field in kind.model_fields.values():
        for each in _classes(field.annotation):
            found |= {each} | _inside(each)
    return found


def _classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [each for part in get_args(annotation) for each in _classes(part)]


class _Noted(Document):
    seconds: Annotated[float, CLOCK]


def test_a_mark_is_seen_through_an_annotation() -> None:
    assert unmarked_fields(_Noted, {"seconds": 1.0, "more": 2}) == {"more": 2}
