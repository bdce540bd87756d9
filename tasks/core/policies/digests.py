"""Digests of a base policy in git, which expose a damaged checkout before anything is trained on it."""

import hashlib
from pathlib import Path
from shutil import copyfile

from tasks.core.records.files import ArtifactError, digest, read_json, write_json

DIGESTS = "digests.json"
"""A map from file name to SHA-256."""
MODEL_CARD = "README.md"
_PART_BYTES = 2**20


def copy_verified(source: Path, folder: Path) -> None:
    """Copy the files of a base policy; check each against the policy's digests, if it has any. Each file is read once.

    Raises ArtifactError naming a file that is missing or altered; files copied until then stay in `folder`.
    """
    expected = read_json(source / DIGESTS) if (source / DIGESTS).exists() else {}
    for name in expected:
        if not (source / name).exists():
            raise ArtifactError(f"{source / name}: missing; restore it with `git checkout -- {source}`")
    for file in sorted(file for file in source.iterdir() if file.is_file()):
        if file.name not in expected:
            copyfile(file, folder / file.name)
        elif _copy(file, folder / file.name) != expected[file.name]:
            raise ArtifactError(f"{file}: altered (its digest is not that of {DIGESTS}); restore it from git")


def _copy(file: Path, target: Path) -> str:
    """Copy a file; return the SHA-256 of the copied bytes."""
    total = hashlib.sha256()
    with file.open("rb") as source, target.open("wb") as copy:
        while part := source.read(_PART_BYTES):
            total.update(part)
            copy.write(part)
    return total.hexdigest()


def write_digests(folder: Path) -> None:
    """Record the digests of all files of a base policy except its model card."""
    files = (file for file in folder.iterdir() if file.name not in (DIGESTS, MODEL_CARD))
    write_json(folder / DIGESTS, {file.name: digest(file) for file in files})
