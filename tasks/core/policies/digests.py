"""Digests of a base policy kept in git, so that a damaged checkout is noticed before anything is trained on it."""

from pathlib import Path

from tasks.core.records.files import ArtifactError, digest, read_json, write_json

DIGESTS = "digests.json"
"""File name -> SHA-256."""
MODEL_CARD = "README.md"


def verify_digests(folder: Path) -> None:
    """Raises ArtifactError naming the first file that is missing from `folder` or altered."""
    for name, expected in read_json(folder / DIGESTS).items():
        path = folder / name
        if not path.exists():
            raise ArtifactError(f"{path}: missing; restore it with `git checkout -- {folder}`")
        if digest(path) != expected:
            raise ArtifactError(f"{path}: altered (its digest is not that of {DIGESTS}); restore it from git")


def write_digests(folder: Path) -> None:
    """Record the digests of all files of a base policy but its model card."""
    files = (file for file in folder.iterdir() if file.name not in (DIGESTS, MODEL_CARD))
    write_json(folder / DIGESTS, {file.name: digest(file) for file in files})
