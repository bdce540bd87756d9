"""The folders that a shard needs, by content, and a shard's paths on a host that has them elsewhere. Knows no Ray."""

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tasks.core.records.files import remembered_digest

T = TypeVar("T")


class NeededFile(NamedTuple):
    """A file of a needed folder."""

    name: str
    """Its path in the folder, with slashes."""
    sha256: str


@dataclass(frozen=True)
class NeededFolder:
    """A folder on the pipeline's machine. Can be pickled."""

    path: Path
    files: tuple[NeededFile, ...]

    @classmethod
    def of(cls, path: Path, without: Collection[str] = ()) -> "NeededFolder":
        """Return the folder as it is now, without files of these names."""
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.name not in without)
        return cls(
            path, tuple(NeededFile(file.relative_to(path).as_posix(), remembered_digest(file)) for file in files)
        )

    def is_here(self) -> bool:
        """Return whether this machine has the folder at the same path with all of its files."""
        try:
            return self.path.is_dir() and all(remembered_digest(self.path / name) == sha for name, sha in self.files)
        except OSError:
            return False


def folders_in(*values: Any) -> list[Path]:
    """Return the folders that exist among the paths that dataclasses, or dataclasses in them, hold; each once."""
    return list(dict.fromkeys(path for value in values for path in _paths(value) if path.is_dir()))


def moved(value: T, places: Mapping[Path, Path]) -> T:
    """Return `value` with its paths, and those of dataclasses in it, as `places` maps the folder nearest above each."""
    if isinstance(value, Path):
        above = [folder for folder in places if value.is_relative_to(folder)]
        nearest = max(above, key=lambda folder: len(folder.parts), default=None)
        return value if nearest is None else places[nearest] / os.path.relpath(value, nearest)  # type: ignore[return-value]
    if not _is_dataclass(value):
        return value
    held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}  # type: ignore[arg-type]
    changed = {name: new for name, old in held.items() if (new := moved(old, places)) is not old}
    return dataclasses.replace(value, **changed) if changed else value  # type: ignore[type-var]


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif _is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _paths(getattr(value, field.name))


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
