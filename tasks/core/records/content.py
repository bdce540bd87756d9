"""The content of an artifact's file, cell by cell, without what differs between equal runs (see `marks`).

Two runs have the same content where all digests are equal. Digests of parts, a column or a field, say where they
differ to somebody who has the other run's digests alone.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from tasks.core.records.document_kinds import document_kind
from tasks.core.records.documents import Digest, Document, OnlyWhereGiven
from tasks.core.records.dotted import dotted
from tasks.core.records.files import SPOILT, UNWRITTEN, ArtifactError, digest, read_json
from tasks.core.records.marks import unmarked_columns, unmarked_fields

_SHORT = 8
"""Hexadecimal digits of a part's digest, which says where contents differ that are known to."""
ShortDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
Cells = dict[str, list[bytes]]
"""The bytes of each row of a column; a field of a document is one row."""


class ContentDigest(Document):
    """Digests of one file's content."""

    digest: Digest
    """SHA-256 of all of it."""
    parts: dict[str, ShortDigest] = Field(default_factory=dict)
    """Digest of each column of a table or field of a document; none of other files."""
    rows: OnlyWhereGiven[str] = None
    """Digests of a table's rows, 8 digits each, one after another."""

    @property
    def row_digests(self) -> list[str]:
        """The digest of each row of a table; none of other files."""
        packed = self.rows or ""
        return [packed[begin : begin + _SHORT] for begin in range(0, len(packed), _SHORT)]


def content_digest(root: Path, path: str) -> ContentDigest | None:
    """Return the digests of the file at `path`, relative to `root`; None if all of its content is left out.

    Raises ArtifactError if the file is missing or damaged.
    """
    if not (root / path).is_file():
        raise ArtifactError(f"{root / path}: missing; {UNWRITTEN}")
    cells = content(root / path, path)
    if cells is None:
        return ContentDigest(digest=digest(root / path))
    if not cells:
        return None
    each = {name: [hashlib.sha256(cell).digest() for cell in column] for name, column in sorted(cells.items())}
    parts = {name: hashlib.sha256(b"".join(column)).hexdigest() for name, column in each.items()}
    whole = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    rows = _rows(each.values()) if path.endswith(".parquet") else None
    return ContentDigest(digest=whole, parts={name: one[:_SHORT] for name, one in parts.items()}, rows=rows)


def content(file: Path, path: str) -> Cells | None:
    """Return the content that counts of `file`, which lies at `path` in its project; None: all of its bytes do."""
    kind = document_kind(path)
    if kind is not None:
        fields = dotted(unmarked_fields(kind, read_json(file)))
        return {name: [json.dumps(value, sort_keys=True).encode()] for name, value in fields.items()}
    return _table(file) if path.endswith(".parquet") else None


def _rows(columns: Iterable[Sequence[bytes]]) -> str:
    rows = zip(*columns, strict=True)
    return "".join(hashlib.sha256(b"".join(row)).hexdigest()[:_SHORT] for row in rows)


def _table(file: Path) -> Cells:
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            names = [*unmarked_columns(opened.schema_arrow)]
            table = opened.read(columns=names).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArtifactError(f"{file}: damaged parquet ({error}); {SPOILT}") from None
    return {name: _cells(_one_chunk(table[name])) for name in names}


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _cells(column: pa.Array) -> list[bytes]:
    """Return the bytes of each value; two values are equal, to the last bit, where their bytes are."""
    kind = column.type
    if column.null_count or not (_is_list(kind) or pa.types.is_struct(kind) or _is_number(kind)):
        return [_sized(repr(value).encode()) for value in column.to_pylist()]
    if pa.types.is_struct(kind):
        return [b"".join(each) for each in zip(*map(_cells, column.flatten()), strict=True)]
    if _is_number(kind):
        return _slices(column, np.arange(len(column) + 1))
    inner = column.flatten()
    bounds = np.concatenate([[0], np.cumsum(pc.list_value_length(column).to_numpy(zero_copy_only=False))]).astype(int)
    if _is_number(inner.type) and not inner.null_count:
        return [_sized(cell) for cell in _slices(inner, bounds)]
    cells = _cells(inner)
    return [_sized(b"".join(cells[begin:end])) for begin, end in pairwise(bounds)]


def _slices(numbers: pa.Array, bounds: Any) -> list[bytes]:
    """Return the bytes of the numbers between each of `bounds` and the next."""
    values = numbers.to_numpy(zero_copy_only=False)
    data, width = values.tobytes(), values.itemsize
    return [data[begin * width : end * width] for begin, end in pairwise(bounds)]


def _sized(cell: bytes) -> bytes:
    return len(cell).to_bytes(8, "little") + cell


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
