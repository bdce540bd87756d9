"""Integrity of an artifact by dvc.lock: the file in the working tree, and its copy in DVC's cache.

This module computes DVC's digests anew, since DVC's state database would answer from memory for a file that was
corrupted behind its back.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

FOLDER = ".dir"
"""Ending of DVC's md5 of a folder, which is the md5 of a listing of its files."""


def broken_artifact(root: Path, cache: Path | None, path: str, md5: str) -> Iterator[str]:
    """Yield what is wrong with the artifact at `path` (relative to `root`), whose md5 should be `md5`.

    `cache` is DVC's folder files/md5; None for a path that git keeps instead.
    """
    file = root / path
    if not file.exists():
        yield f"{path}: missing; `dvc checkout {path}` restores it"
    elif (actual := dvc_md5(file)) != md5:
        yield f"{path}: edited: its md5 is {actual}, in dvc.lock {md5}; `dvc checkout --force {path}` restores it"
    if cache is not None:
        yield from _broken_cache(cache, path, md5)


def dvc_md5(path: Path) -> str:
    """Return the md5 that DVC gives a file; for a folder that of the sorted listing of its files, ending in ".dir"."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()
    files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
    listing = [{"md5": dvc_md5(file), "relpath": name} for name, file in files]
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode()).hexdigest() + FOLDER


def _broken_cache(cache: Path, path: str, md5: str) -> Iterator[str]:
    problem = _broken_object(cache, md5)
    if problem is not None:
        yield f"{path}: its cache file {problem}"
    elif md5.endswith(FOLDER):
        for entry in json.loads(cached_object(cache, md5).read_bytes()):
            problem = _broken_object(cache, entry["md5"])
            if problem is not None:
                yield f"{path}/{entry['relpath']}: its cache file {problem}"


def _broken_object(cache: Path, md5: str) -> str | None:
    file = cached_object(cache, md5)
    if not file.exists():
        return f"{file} is missing; `dvc pull` fetches it"
    actual = dvc_md5(file)
    if actual == md5.removesuffix(FOLDER):
        return None
    return f"{file} is corrupt (its md5 is {actual}); delete it and run `dvc pull` or `dvc repro`"


def cached_object(cache: Path, md5: str) -> Path:
    """Return the path of the content with this md5 in DVC's folder files/md5."""
    return cache / md5[:2] / md5[2:]
