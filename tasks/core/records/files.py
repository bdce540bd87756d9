"""Atomic writing (a temporary file in the same folder, then a rename), reading of JSON, and digests of files.

A remembered digest is computed once for all processes of a machine, until the file changes. A file is identified by
device, inode, size and modification time, so it may be renamed and its folder replaced. Not for proving that a file is
unchanged (lineage, a base policy's digests): such proofs read the file.
"""

import contextlib
import glob
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tasks.core.processes.running import exists

_Json = TypeVar("_Json", dict[str, Any], list[Any])
Fingerprint = tuple[tuple[str, int, int, int], ...]
"""Name, size in bytes, modification time in ns and inode of each file in a folder."""


class ArtifactError(ValueError):
    """An artifact is missing, damaged or breaks a rule; the message names the file and, if possible, row and rule."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, remove it otherwise.

    Works for a file and for a folder (which the block creates). An existing folder at `path` is replaced whole. Removes
    what a killed process left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        pid = left.name.split(".")[-2]
        if left == temporary or (pid.isdecimal() and not exists(int(pid))):
            _remove(left)
    try:
        yield temporary
        if path.is_dir():
            shutil.rmtree(path)
        temporary.replace(path)
    finally:
        _remove(temporary)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write sorted, indented JSON ending in a newline. Raises ValueError for NaN and infinity."""
    text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


UNWRITTEN, SPOILT = "run the stage that writes it (`dvc repro`)", "delete it and run `dvc repro`"
"""Advice for an artifact of a stage."""


def read_json(path: Path, *, missing: str = UNWRITTEN, damaged: str = SPOILT) -> dict[str, Any]:
    """Read a JSON object, one that a stage wrote unless `missing` and `damaged` say what else to do.

    Raises ArtifactError naming the file: missing, truncated or not an object.
    """
    return load_json(path, dict, missing=missing, damaged=damaged)


def load_json(path: Path, kind: type[_Json], *, missing: str, damaged: str) -> _Json:
    """Read a JSON object or list. Raises ArtifactError naming the file; `missing` and `damaged` say what to do."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path}: missing; {missing}") from None
    except ValueError as error:
        raise ArtifactError(f"{path}: not valid JSON ({error}); {damaged}") from None
    if not isinstance(content, kind):
        expected = "object" if kind is dict else "list"
        raise ArtifactError(f"{path}: expected a JSON {expected}, found {type(content).__name__}")
    return content


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file, without their line feeds. Raises OSError and UnicodeDecodeError.

    str.splitlines would also split at U+2028 and the like, which JSON may contain unescaped.
    """
    with path.open(encoding="utf-8") as stream:
        return [line.removesuffix("\n") for line in stream]


def read_json_lines(path: Path) -> list[Any]:
    """Return the values of a JSON Lines file. Raises OSError and ValueError."""
    return [json.loads(line) for line in read_lines(path) if line.strip()]


def digest(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, or of a folder (sorted relative names and contents of its files)."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    total = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        total.update(file.relative_to(path).as_posix().encode() + b"\0" + bytes.fromhex(digest(file)))
    return total.hexdigest()


def fingerprint(folder: Path) -> Fingerprint:
    """Return a value that changes when a file in `folder` changes. `digest` would take minutes for 64 GB each time.

    The inode distinguishes files of equal size that an archive gave the same time, such as two fine-tuned models.
    """
    files = [(file.relative_to(folder).as_posix(), file.stat()) for file in sorted(folder.rglob("*")) if file.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in files)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
