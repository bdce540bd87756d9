"""The first artifact of a run that differs from the published one: in which column of which row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flows.published.finished_run import artifact_digests, finished_stages
from flows.published.records import RunDigests
from tasks.core.records.content import ContentDigest
from tasks.core.records.document_kinds import document_kind
from tasks.core.records.dotted import dotted
from tasks.core.records.files import read_json
from tasks.core.records.schemas import key_columns

_SHOWN = 60
"""Characters of a value."""


@dataclass(frozen=True)
class Difference:
    """The first file that differs."""

    stage: str
    before: int
    """Artifacts before it, in the pipeline's order, that have the published content."""
    out: str
    path: str
    here: ContentDigest | None
    """None: there is no such file here."""
    published: ContentDigest | None
    """None: the published run had no such file."""

    @property
    def parts(self) -> list[str]:
        """Return the columns or fields that differ."""
        here, published = (each.parts if each else {} for each in (self.here, self.published))
        return [name for name in sorted(here | published) if here.get(name) != published.get(name)]

    @property
    def row(self) -> int | None:
        """Return the first row that differs; None for what has no rows, or another number of them."""
        if self.here is None or self.published is None:
            return None
        pairs = zip(self.here.row_digests, self.published.row_digests, strict=False)
        return next((row for row, (here, published) in enumerate(pairs) if here != published), None)


def first_difference(root: Path, published: RunDigests) -> Difference | None:
    """Compare the finished run in `root`, stage by stage. Raises ArtifactError where it is not whole."""
    expected = {stage.name: stage.artifacts for stage in published.stages}
    before = 0
    for stage in finished_stages(root):
        theirs = expected.pop(stage.name, {})
        ours = dict(artifact_digests(root, stage))
        for out in [*theirs, *(ours.keys() - theirs.keys())]:
            here, there = ours.get(out, {}), theirs.get(out, {})
            for path in sorted(here | there):
                if here.get(path) != there.get(path):
                    return Difference(stage.name, before, out, path, here.get(path), there.get(path))
            before += 1
    for name, outs in expected.items():
        out, files = next(iter(outs.items()))
        path, there_only = next(iter(files.items()))
        return Difference(name, before, out, path, None, there_only)
    return None


def described(found: Difference, root: Path, copy: Callable[[str, str], Path | None]) -> Iterator[str]:
    """Yield the difference in lines; `copy` finds the published file by output and path, and returns None without."""
    yield f"{found.stage}: {found.path} differs from the published one, as the first of all"
    if found.here is None or found.published is None:
        yield f"  {'it is not here' if found.here is None else 'the published run has no such file'}"
        return
    if not found.parts:
        yield "  all of its bytes count; it has no columns"
        return
    if found.row is None and found.here.rows != found.published.rows:
        yield f"  {len(found.here.row_digests)} rows here, {len(found.published.row_digests)} published"
    yield from _cells(found, root / found.path, copy(found.out, found.path))


def _cells(found: Difference, here: Path, there: Path | None) -> Iterator[str]:
    """Yield the first cell that differs, both values where the published file is known."""
    ours = _values(here, found.path, found.row)
    names = ", ".join(found.parts)
    if there is None:
        yield f"  {_place(names, found.row, ours)}"
        yield "  the published file is neither in DVC's cache nor at a remote, so its values are not known here"
        return
    theirs = _values(there, found.path, found.row)
    first = next((name for name in found.parts if not _same(ours.get(name), theirs.get(name))), found.parts[0])
    index = _first_index(ours.get(first), theirs.get(first))
    yield f"  {_place(first, found.row, ours)}{'' if index is None else f', value {index}'}"
    for words, values in (("here", ours), ("published", theirs)):
        yield f"    {words + ':':11}{_shown(values.get(first), index)}"
    if len(found.parts) > 1:
        yield f"  columns or fields that differ: {names}"


def _place(name: str, row: int | None, values: dict[str, Any]) -> str:
    if row is None:
        return name
    keys = ", ".join(f"{key} {values[key]}" for key in values if key in ("task_id", "rollout_index", "policy"))
    return f"{name} of row {row} ({keys})"


def _values(file: Path, path: str, row: int | None) -> dict[str, Any]:
    """Return the values of a row of a table, or of a document's fields."""
    if document_kind(path) is not None:
        return dotted(read_json(file))
    table = pq.read_table(file)
    if row is None:
        return {}
    ordered = [*key_columns(table.schema), *table.column_names]
    return {name: table[name][row].as_py() for name in dict.fromkeys(ordered)}


def _same(ours: Any, theirs: Any) -> bool:
    return repr(ours) == repr(theirs)


def _first_index(ours: Any, theirs: Any) -> int | None:
    """Return the first place at which two lists differ; None where they are none."""
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return None
    pairs = zip(ours, theirs, strict=False)
    return next((index for index, pair in enumerate(pairs) if not _same(*pair)), min(len(ours), len(theirs)))


def _shown(value: Any, index: int | None) -> str:
    shown = value if index is None else (value[index] if index < len(value) else "(ends before)")
    text = repr(shown)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
