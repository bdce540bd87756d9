"""Files that came from the pipeline's machine, kept by their SHA-256 for all processes of a host. Knows no Ray."""

import fcntl
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from flows.errors import DISK_FAULTS
from flows.workers.needed_folders import NeededFile, NeededFolder
from tasks.core.processes.running import exists
from tasks.core.records.files import ArtifactError, digest, replacing

Sent = Mapping[str, Callable[[], Iterable[bytes]]]
"""By a file's SHA-256, a function that yields the file's bytes in pieces."""
_PART = ".part"
"""End of the name of a file that has not come whole."""
_log = logging.getLogger(__name__)


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
