"""The folders that a shard needs, by content, and where a host without them has them. Knows no Ray.

Files that came from the pipeline's machine are kept by their SHA-256 for all processes of a host.
"""

import dataclasses
import fcntl
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flows.errors import DISK_FAULTS
from tasks.core.processes.running import exists
from tasks.core.records.files import ArtifactError, digest, remembered_digest, replacing

T = TypeVar("T")
Sent = Mapping[str, Callable[[], Iterable[bytes]]]
"""By a file's SHA-256, a function that yields the file's bytes in pieces."""
_PART = ".part"
"""End of the name of a file that has not come whole."""
_log = logging.getLogger(__name__)


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


def cache_folder() -> Path:
    """Return where this user's files are kept on this host."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loopline" / "received"


class ContentCache:
    """Files in `folder`, of `limit` bytes together unless more are in use. Any number of processes may share it."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self._limit = folder, limit
        self._files = folder / "files"
        self._files.mkdir(parents=True, exist_ok=True)

    def place(self, folders: Mapping[Path, Sequence[NeededFile]], sent: Sent) -> list[str]:
        """Make folders of the cache's files and of those that were sent; every file is read and its digest compared.

        Returns the SHA-256 of the files that are missing; then no folder was made. Raises ArtifactError for a file
        that was sent with another content. Nothing is kept of a file whose sending breaks off.
        """
        wanted = {file.sha256 for files in folders.values() for file in files}
        with self._locked():
            try:
                if missing := sorted(sha256 for sha256 in wanted if not self._holds(sha256, sent)):
                    return missing
                for folder, files in folders.items():
                    self._link(folder, files)
            finally:
                self._shrink(wanted)
        return []

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait for other processes, which may be about to fetch the same files."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _holds(self, sha256: str, sent: Sent) -> bool:
        """Return whether the file is there, taking it from `sent` where it isn't, or is damaged."""
        path = self._files / sha256
        if path.exists():
            if digest(path) == sha256:
                os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))  # folders' fingerprints stay
                return True
            _log.warning("%s: damaged; it is fetched again", path)
            path.unlink()
        if sha256 not in sent:
            return False
        self._fetch(path, sent[sha256])
        return True

    def _fetch(self, path: Path, sent: Callable[[], Iterable[bytes]]) -> None:
        part = path.with_name(f"{path.name}{_PART}")
        try:
            with part.open("wb") as file:
                file.writelines(sent())
            if digest(part) != path.name:
                raise ArtifactError(f"{path}: was sent with another content: did the file change on its machine?")
            part.replace(path)
        except OSError as error:
            if error.errno in DISK_FAULTS:
                error.filename = error.filename or str(self.folder)  # `write` does not say which disk is full
            raise
        finally:
            part.unlink(missing_ok=True)

    def _link(self, folder: Path, files: Sequence[NeededFile]) -> None:
        with replacing(folder) as temporary:
            temporary.mkdir()
            for name, sha256 in files:
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(self._files / sha256, temporary / name)

    def _shrink(self, kept: set[str]) -> None:
        """Remove the files that were used longest ago, none of `kept`. Folders made of them stay whole."""
        files = [(path.stat(), path) for path in self._files.iterdir()]
        size = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda file: max(file[0].st_atime_ns, file[0].st_mtime_ns)):
            if size <= self._limit:
                return
            if path.name not in kept:
                path.unlink()
                size -= stat.st_size


class OwnProject:
    """A folder in place of the project's, for this process of a host that doesn't have that one."""

    def __init__(self, cache: ContentCache, shared: Path) -> None:
        """`shared`: the checkout on this host, whose interpreters are used."""
        self._cache, self._placed = cache, dict[Path, tuple[NeededFile, ...]]()
        projects = cache.folder / "projects"
        self.folder = projects / f"{socket.gethostname()}-{os.getpid()}"
        for left in projects.glob(f"{socket.gethostname()}-*"):
            if left == self.folder or not exists(int(left.name.rpartition("-")[2])):
                shutil.rmtree(left, ignore_errors=True)
        own = self.folder / ".loopline"
        own.mkdir(parents=True)
        for name in ("interpreters", "appworld_roots"):
            (shared / ".loopline" / name).mkdir(parents=True, exist_ok=True)
            (own / name).symlink_to(shared / ".loopline" / name, target_is_directory=True)

    def places(self, project: Path, needs: Iterable[NeededFolder]) -> dict[Path, Path]:
        """Return where the folders of the pipeline's machine are here: the project, and what lies outside of it."""
        outside = [need.path for need in needs if not need.path.is_relative_to(project)]
        return {project: self.folder} | {path: self.folder / "outside" / str(path)[1:] for path in outside}

    def fill(self, project: Path, needs: Sequence[NeededFolder], sent: Sent) -> list[str]:
        """Bring the folder to what is needed, no more; return the SHA-256 of files that are missing."""
        places = self.places(project, needs)
        wanted = {places.get(need.path) or self.folder / need.path.relative_to(project): need.files for need in needs}
        changed = {folder: files for folder, files in wanted.items() if self._placed.get(folder) != files}
        if changed and (missing := self._cache.place(changed, sent)):
            return missing
        for folder in self._placed.keys() - wanted.keys():
            shutil.rmtree(folder, ignore_errors=True)
        self._placed = wanted
        return []

    def close(self) -> None:
        """Remove the folder; the cache keeps the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
