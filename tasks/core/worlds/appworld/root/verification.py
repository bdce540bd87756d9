"""Is this folder a whole AppWorld root? One clear error when not; tasks, counts and the applied denylist when it is."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.config.splits import SPLITS, Split
from tasks.core.interfaces.world import Task
from tasks.core.records.files import ArtifactError, load_json
from tasks.core.worlds.appworld.root import layout

OFFICIAL_COUNTS: dict[Split, tuple[int, ...]] = {
    "train": (105, 90),
    "dev": (60, 57),
    "test_normal": (168,),
    "test_challenge": (417,),
}
"""Tasks per split of the official data: as first released and, where it differs, after later removals."""

_TASK_ID = re.compile(r"[0-9a-zA-Z]+_[0-9]+")
_SQLITE_HEADER = b"SQLite format 3\x00"
_DIFFICULTIES = (1, 2, 3)


@dataclass(frozen=True)
class RootReport:
    """Content of a root."""

    root: Path
    tasks: dict[Split, tuple[Task, ...]]
    """In the order of the data-set files, without denied tasks."""
    listed: dict[Split, int]
    """Tasks named in the data-set files, denied ones included."""
    denied: tuple[str, ...]
    """Ids that the denylist took out."""
    unknown_denied: tuple[str, ...]
    """Ids of the denylist that this root does not list."""

    @property
    def official_counts(self) -> bool:
        """True when every split has as many tasks as the official data."""
        return all(self.listed[split] in OFFICIAL_COUNTS[split] for split in SPLITS)

    @property
    def summary(self) -> str:
        """One line for people."""
        counts = ", ".join(f"{split} {self.listed[split]}" for split in SPLITS)
        parts = [counts, "official counts" if self.official_counts else "not the official counts (105, 60, 168, 417)"]
        if self.denied:
            parts.append(f"without {', '.join(self.denied)} (denylist)")
        if self.unknown_denied:
            parts.append(f"not in it, though in the denylist: {', '.join(self.unknown_denied)}")
        return "; ".join(parts)


def verify_root(root: Path, denylist: Iterable[str] = ()) -> RootReport:
    """Check everything that the engine will read. Raises ArtifactError naming file and rule.

    Costs a few file accesses per task (under a second for the official 750).
    """
    _check_folder(root)
    _check_databases(root)
    listed = {split: _read_dataset(root, split) for split in SPLITS}
    _check_unique(root, listed)
    denied = tuple(dict.fromkeys(_checked_denylist(denylist)))
    tasks = {
        split: tuple(_read_task(root, task_id, split) for task_id in ids if task_id not in denied)
        for split, ids in listed.items()
    }
    every = {task_id for ids in listed.values() for task_id in ids}
    return RootReport(
        root=root,
        tasks=tasks,
        listed={split: len(ids) for split, ids in listed.items()},
        denied=tuple(task_id for task_id in denied if task_id in every),
        unknown_denied=tuple(task_id for task_id in denied if task_id not in every),
    )


def _check_folder(root: Path) -> None:
    if not root.is_dir():
        raise ArtifactError(f"{root}: no such folder; {_OBTAIN}")
    if not (root / "data").is_dir():
        hint = f"; give its parent {root.parent}" if (root / "base_dbs").is_dir() else f"; {_OBTAIN}"
        raise ArtifactError(f"{root}: no AppWorld root: it has no data folder{hint}")


def _check_databases(root: Path) -> None:
    for app in layout.DATABASES:
        path = layout.base_database(root, app)
        if not path.is_file():
            raise ArtifactError(f"{path}: missing; the root is incomplete: {_OBTAIN}")
        with path.open("rb") as stream:
            if stream.read(len(_SQLITE_HEADER)) != _SQLITE_HEADER:
                raise ArtifactError(f"{path}: no SQLite database (half downloaded?); {_OBTAIN}")
    for app in layout.APPS:
        _read_json(layout.api_docs(root, app))


def _read_dataset(root: Path, split: Split) -> list[str]:
    path = layout.dataset(root, split)
    if not path.is_file():
        raise ArtifactError(f"{path}: missing; the root is incomplete: {_OBTAIN}")
    ids: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        task_id = line.partition(":")[0].strip()  # "id: tag" is allowed
        if task_id and not _TASK_ID.fullmatch(task_id):
            raise ArtifactError(f"{path}: line {number}: {task_id!r} is no task id (<scenario>_<number>)")
        if task_id:
            ids.append(task_id)
    if not ids:
        raise ArtifactError(f"{path}: lists no task; {_OBTAIN}")
    return ids


def _check_unique(root: Path, listed: dict[Split, list[str]]) -> None:
    for split, ids in listed.items():
        repeated = [task_id for task_id, count in Counter(ids).items() if count > 1]
        if repeated:
            raise ArtifactError(f"{layout.dataset(root, split)}: duplicate task id {repeated[0]}")
    split_of_scenario: dict[str, Split] = {}
    for split, ids in listed.items():
        for task_id in ids:
            first = split_of_scenario.setdefault(_scenario(task_id), split)
            if first != split:
                raise ArtifactError(
                    f"{layout.dataset(root, split)}: {task_id}: its scenario is in the split {first} too"
                )


def _checked_denylist(denylist: Iterable[str]) -> list[str]:
    ids = list(denylist)
    for task_id in ids:
        if not _TASK_ID.fullmatch(task_id):
            raise ArtifactError(f"world.appworld.denylist: {task_id!r} is no task id (<scenario>_<number>)")
    return ids


def _read_task(root: Path, task_id: str, split: Split) -> Task:
    folder = layout.task_folder(root, task_id)
    if not folder.is_dir():
        raise ArtifactError(f"{layout.dataset(root, split)}: unknown task id {task_id}: there is no {folder}")
    _check_task_files(root, task_id)
    specs = _read_json(folder / "specs.json")
    version = specs.get("db_version")
    if version != layout.DB_VERSION:
        raise ArtifactError(
            f"{folder / 'specs.json'}: db_version is {version!r}, but the engine reads {layout.DB_VERSION!r}; "
            "get the data of that version, and no mixture of two downloads"
        )
    instruction = specs.get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise ArtifactError(f"{folder / 'specs.json'}: instruction is empty")
    return Task(task_id, _scenario(task_id), _difficulty(root, task_id), split, instruction)


def _check_task_files(root: Path, task_id: str) -> None:
    folder = layout.task_folder(root, task_id)
    for app in layout.DATABASES:
        if not ((folder / "dbs" / f"{app}.jsonl").is_file() or (folder / "dbs" / f"{app}.db").is_file()):
            raise ArtifactError(f"{folder / 'dbs' / app}.jsonl: missing (half downloaded?); {_OBTAIN}")
    for name in layout.GROUND_TRUTH_FILES:
        path = layout.ground_truth(root, task_id) / name
        if not path.is_file() or path.stat().st_size == 0:
            raise ArtifactError(f"{path}: missing or empty (half downloaded?); {_OBTAIN}")


def _difficulty(root: Path, task_id: str) -> int:
    path = layout.ground_truth(root, task_id) / "metadata.json"
    difficulty = _read_json(path).get("difficulty")
    if difficulty not in _DIFFICULTIES:
        raise ArtifactError(f"{path}: difficulty is {difficulty!r}, not 1, 2 or 3")
    return int(difficulty)


def _read_json(path: Path) -> dict[str, Any]:
    damaged = f"half downloaded? {_OBTAIN}"
    return load_json(path, dict, missing=f"the root is incomplete: {_OBTAIN}", damaged=damaged)


def _scenario(task_id: str) -> str:
    return task_id.partition("_")[0]


_OBTAIN = (
    "get the official data anew with `appworld download data --root FOLDER` (removing the old folder first), "
    "or set world.appworld.source to authored"
)
