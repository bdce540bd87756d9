"""An authored root as one file. It has 17,000, and DVC would look at each several times in every stage that plays."""

import tarfile
from pathlib import Path

from filelock import FileLock

from tasks.core.records.files import ArtifactError, digest, replacing

_TIME = 315_532_800
"""Modification time of every file in an archive, the first second of 1980."""


def pack_root(root: Path, archive: Path) -> None:
    """Write the files of `root` to `archive`, an uncompressed tar. Same files, same bytes."""
    with (
        replacing(archive) as temporary,
        tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as stream,
    ):
        for path in sorted(root.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(path.relative_to(root).as_posix())
                entry.size, entry.mtime = path.stat().st_size, _TIME
                with path.open("rb") as content:
                    stream.addfile(entry, content)


def unpack_root(archive: Path, folder: Path) -> Path:
    """Return the files of `archive` as a folder in `folder`, named by the archive's digest.

    A folder that is there serves again if each file has its size and time in the archive; if not, it is written anew.
    Raises ArtifactError naming an archive that is missing or damaged.
    """
    try:
        root = folder / digest(archive)[:16]
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{root.name}.lock"), tarfile.open(archive) as stream:
            if not all(_is_there(root, entry) for entry in stream):
                with replacing(root) as temporary:
                    stream.extractall(temporary, filter="data")
    except FileNotFoundError:
        raise ArtifactError(f"{archive}: missing; run `dvc repro prepare_world`") from None
    except tarfile.TarError as error:
        raise ArtifactError(f"{archive}: damaged ({error}); delete it and run `dvc repro prepare_world`") from None
    return root


def _is_there(root: Path, entry: tarfile.TarInfo) -> bool:
    try:
        found = (root / entry.name).stat()
    except FileNotFoundError:
        return False
    return (found.st_size, found.st_mtime) == (entry.size, entry.mtime)
