"""A view of a root without what agents must not read."""

from pathlib import Path

_SHARED = ("api_docs", "base_dbs", "version.txt")
_OF_A_TASK = ("specs.json", "dbs")


def make_agent_root(root: Path, folder: Path) -> Path:
    """Link everything of `root` but ground truth and data sets into the empty folder `folder`; returns it."""
    data, source = folder / "data", root.resolve() / "data"
    data.mkdir(parents=True)
    for name in _SHARED:
        if (source / name).exists():
            (data / name).symlink_to(source / name)
    for task in sorted((source / "tasks").iterdir()):
        (data / "tasks" / task.name).mkdir(parents=True)
        for name in _OF_A_TASK:
            (data / "tasks" / task.name / name).symlink_to(task / name)
    return folder
