"""SHA-256 of large files, computed once for all processes of a machine, until the file changes.

A file is identified by device, inode, size and modification time, so it may be renamed and its folder replaced. Not for
proving that a file is unchanged (lineage, a base policy's digests): such proofs read the file.
"""

import contextlib
import time
from pathlib import Path

from tasks.core.records.files import ArtifactError, digest, read_json, write_json

STATE_FOLDER = Path(".loopline") / "digests"
KEPT_FROM = 2**24
"""Minimum size in bytes for sharing a digest with other processes; smaller files are read in hundredths of a second."""
_GRAIN_S = 0.05
"""A file that changes again within this time may keep its modification time: the kernel's clock ticks."""

_Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes, modification time in ns."""
_known: dict[_Identity, str] = {}


def remembered_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal; if the file has just changed, wait for the clock's next tick first."""
    identity = _identity(path)
    age_s = time.time() - identity[3] / 1e9
    if 0 <= age_s < _GRAIN_S:
        time.sleep(_GRAIN_S - age_s)
        identity = _identity(path)
    sha256 = _known.get(identity) or _recorded(identity)
    if sha256 is None:
        sha256 = digest(path)
        if _identity(path) != identity:  # the file was written while it was being read
            return sha256
        _record(identity, sha256)
    _known[identity] = sha256
    return sha256


def _identity(path: Path) -> _Identity:
    stat = path.stat()
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _file(identity: _Identity) -> Path:
    return STATE_FOLDER / f"{identity[0]}-{identity[1]}.json"


def _recorded(identity: _Identity) -> str | None:
    """Return the digest that another process recorded for the file, if the file has not changed since."""
    if identity[2] < KEPT_FROM:
        return None
    try:
        record = read_json(_file(identity))
    except (ArtifactError, OSError):
        return None
    return str(record["sha256"]) if record.get("identity") == list(identity) and "sha256" in record else None


def _record(identity: _Identity, sha256: str) -> None:
    if identity[2] >= KEPT_FROM:
        with contextlib.suppress(OSError):  # in a read-only folder each process computes digests for itself
            write_json(_file(identity), {"identity": list(identity), "sha256": sha256})
