"""The place of DVC's cache."""

from pathlib import Path


def cache_folder(root: Path) -> Path:
    """Return the folder of DVC's cache of this project, by its configuration."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return Path(repo.cache.local.path)
