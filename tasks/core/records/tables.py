"""Typed parquet: every table is validated on writing and on reading."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandera.errors
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.core.records.files import SPOILT, UNWRITTEN, ArtifactError, replacing
from tasks.core.records.invariants import broken_rules
from tasks.core.records.schemas import OPTIONAL_COLUMNS, TURN_COLUMNS, checks


def write_rows(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Write `rows` as parquet at `path` and return the table. Raises ArtifactError when a row breaks the schema."""
    try:
        table = table_of(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ArtifactError(f"{path}: {error}") from None
    write_table(path, table, table.schema)
    return table


def table_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return the rows as a table, with only those optional columns that some row has.

    A row that lacks a column with one value per turn (its world broke at once) gets zeros.
    """
    left_out = {name for name in OPTIONAL_COLUMNS if not any(name in row for row in rows)}
    schema = pa.schema([field for field in schema if field.name not in left_out])
    for name in TURN_COLUMNS.intersection(schema.names) if "turns" in schema.names else ():
        rows = [{name: [0] * len(row["turns"])} | row for row in rows]
    return pa.Table.from_pylist(rows, schema=schema)


def write_table(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    """Validate and write a table atomically: zstd, the same bytes for the same table."""
    validate(table, schema, path)
    with replacing(path) as temporary:
        pq.write_table(
            table, temporary, compression="zstd", use_dictionary=_dictionary_columns(schema), write_page_checksum=True
        )


def read_table(
    path: Path, schema: pa.Schema, *, trusted: bool = False, missing: str = UNWRITTEN, damaged: str = SPOILT
) -> pa.Table:
    """Read and validate a table. A `trusted` table is only read, because the stage that trained on it validated it.

    Raises ArtifactError naming file, row and rule; `missing` and `damaged` say what to do.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; {missing}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArtifactError(f"{path}: damaged parquet ({error}); {damaged}") from None
    _require_once(table, path, damaged)
    if not trusted:
        validate(table, schema, path)
    return table.select([name for name in schema.names if name in table.column_names])


def _require_once(table: pa.Table, path: Path, remedy: str) -> None:
    """Raise ArtifactError if two columns have the same name: nobody, including Arrow, knows which is meant."""
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    _refuse(path, (f"column {name}: there is more than one; {remedy}" for name in twice))


def validate(table: pa.Table, schema: pa.Schema, path: Path) -> None:
    """Raise ArtifactError with up to five broken rules, each with its row if it has one."""
    try:
        checks(schema).validate(table, lazy=True)
    except pandera.errors.SchemaErrors as error:
        _refuse(path, _failures(error.failure_cases.to_pylist(), table))
    _refuse(path, broken_rules(table))


def _refuse(path: Path, broken: Iterable[str]) -> None:
    lines = [f"{path}: {line}" for line in islice(broken, 5)]
    if lines:
        raise ArtifactError("\n".join(lines))


def _failures(cases: list[dict[str, Any]], table: pa.Table) -> Iterator[str]:
    """Yield pandera's failure cases in words. Their index counts failures, not rows, so rows are found by value."""
    rows: dict[tuple[str, ...], Iterator[int]] = {}
    for case in cases:
        column, value, rule = case["column"], case["failure_case"], case["check"]
        if column is None:
            yield f"{_TABLE_RULES.get(rule, rule)}: {value}"
        elif case["check_number"] is None:
            yield f"column {column}: {value} breaks {rule}"
        else:
            matches = rows.setdefault((column, rule, value), iter(_rows_with(table[column], value)))
            yield f"row {next(matches, '?')}, column {column}: {value} breaks {rule}"


def _rows_with(column: pa.ChunkedArray, text: str) -> list[int]:
    return [row for row, cell in enumerate(column.to_pylist()) if str(cell) == text]


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_string(field.type)]


_TABLE_RULES = {"column_in_schema": "unknown column", "column_in_dataframe": "missing column"}
