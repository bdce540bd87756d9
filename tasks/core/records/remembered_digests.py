"""SHA-256 of large files, computed once for all processes of a machine, until the file changes.

A file is known by device, inode, size and time of change, so that it may be renamed and its folder replaced. Not for
proofs that a file still is what it was (lineage, a base policy's digests): those read it.
"""

import contextlib
import time
from pathlib import Path

from tasks.core.records.files import ArtifactError, digest, read_json, write_json

STATE_FOLDER = Path(".loopline") / "digests"
KEPT_FROM = 2**24
"""Bytes from which other processes are told; a smaller file is read in hundredths of a second."""
_GRAIN_S = 0.05
"""A file that changes again so soon may bear the same time as before: the kernel's clock ticks."""

_Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes, time of change in ns."""
_known: dict[_Identity, str] = {}


def remembered_digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal; of one that was changed just now, after the clock's next tick."""
    identity = _identity(path)
    age_s = time.time() - identity[3] / 1e9
    if 0 <= age_s < _GRAIN_S:
        time.sleep(_GRAIN_S - age_s)
        identity = _identity(path)
    found = _known.get(identity) or _told(identity)
    if found is None:
        found = digest(path)
        if _identity(path) != identity:  # it was written while it was read
            return found
        _tell(identity, found)
    _known[identity] = found
    return found


def _identity(path: Path) -> _Identity:
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _file(identity: _Identity) -> Path:
    return STATE_FOLDER / f"{identity[0]}-{identity[1]}.json"


def _told(identity: _Identity) -> str | None:
    """The digest that some process found for the file, if it has not changed since."""
    if identity[2] < KEPT_FROM:
        return None
    try:
        record = read_json(_file(identity))
    except (ArtifactError, OSError):
        return None
    return str(record["sha256"]) if record.get("identity") == list(identity) and "sha256" in record else None


def _tell(identity: _Identity, found: str) -> None:
    if identity[2] >= KEPT_FROM:
        with contextlib.suppress(OSError):  # a folder that cannot be written to: each process reads for itself
            write_json(_file(identity), {"identity": list(identity), "sha256": found})
