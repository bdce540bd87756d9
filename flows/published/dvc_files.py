"""The files of a published run, where this project's DVC has them: in its cache, or at its remote."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tasks.core.lineage.dvc_lock import whole_lock
from tasks.core.lineage.integrity import FOLDER, cached_object, dvc_md5
from tasks.core.records.files import ArtifactError


class RunFiles:
    """The files behind a published dvc.lock."""

    def __init__(self, root: Path, lock: Path) -> None:
        self._root = root
        self._md5s = whole_lock(lock).artifacts

    def find(self, out: str, path: str) -> Path | None:
        """Return a copy of the published file at `path` in the output `out`; None where DVC has none."""
        with suppress(ArtifactError), _repository(self._root) as repo:
            listed = self._object(repo, self._md5s.get(out, ""))
            if not self._md5s.get(out, "").endswith(FOLDER):
                return listed
            entries = json.loads(listed.read_bytes()) if listed else []
            inside = Path(path).relative_to(out).as_posix()
            return next((self._object(repo, one["md5"]) for one in entries if one["relpath"] == inside), None)
        return None

    def _object(self, repo: Any, md5: str) -> Path | None:
        """Return the file in DVC's cache with this content, which is fetched if a remote has it."""
        if not md5:
            return None
        file = cached_object(Path(repo.cache.local.path), md5)
        if not file.exists() and _has_remote(repo):
            from dvc_data.hashfile.hash_info import HashInfo

            repo.cloud.pull([HashInfo("md5", md5)])
        # A cached file may be one with the artifact, and edited with it.
        return file if file.exists() and dvc_md5(file) == md5.removesuffix(FOLDER) else None


def pull_run(root: Path, lock: Path) -> bool:
    """Fetch a published run into a checkout in which nothing ran, if DVC has a remote. Return whether it did.

    Raises ArtifactError where the remote does not have all of it.
    """
    if (root / "dvc.lock").exists():
        return False
    with _repository(root) as repo:
        if not _has_remote(repo):
            return False
        (root / "dvc.lock").write_bytes(lock.read_bytes())
        try:
            repo.pull()
        except Exception:
            (root / "dvc.lock").unlink()
            raise
    return True


@contextmanager
def _repository(root: Path) -> Iterator[Any]:
    """Open DVC's repository. Raises ArtifactError with DVC's reason where it is none, or a remote fails."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as repo:
            yield repo
    except DvcException as error:
        raise ArtifactError(f"DVC: {error}") from None


def _has_remote(repo: Any) -> bool:
    return bool(repo.config["core"].get("remote") or repo.config["remote"])
