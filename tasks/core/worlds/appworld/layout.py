"""A root, AppWorld's data folder: the places of things in it, and whether it is whole.

One clear error when it is not; tasks, counts and the applied denylist when it is."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.config.splits import SPLITS, Split
from tasks.core.confinement.process_pool import kept_variables
from tasks.core.interfaces.world import Task
from tasks.core.records.files import ArtifactError, load_json

APPS = (
    "api_docs", "supervisor", "amazon", "phone", "file_system", "spotify", "venmo", "gmail", "splitwise",
    "simple_note", "todoist",
)  # fmt: skip
DATABASES = ("admin", *APPS)
DB_VERSION = "0.1.0"
GROUND_TRUTH_FILES = (
    "evaluation.py", "answer.json", "public_data.json", "private_data.json", "test_data.json", "metadata.json",
)  # fmt: skip


def base_database(root: Path, app: str) -> Path:
    return root / "data" / "base_dbs" / f"{app}.db"


def api_docs(root: Path, app: str) -> Path:
    return root / "data" / "api_docs" / "standard" / f"{app}.json"


def dataset(root: Path, split: str) -> Path:
    """One task id per line."""
    return root / "data" / "datasets" / f"{split}.txt"


def task_folder(root: Path, task_id: str) -> Path:
    return root / "data" / "tasks" / task_id


def ground_truth(root: Path, task_id: str) -> Path:
    """Must not be readable where agents' code runs."""
    return task_folder(root, task_id) / "ground_truth"


def oracle(root: Path, task_id: str) -> Path:
    """`def solution(apis, requester)`. Authored roots have one for every task."""
    return ground_truth(root, task_id) / "compiled_solution.py"


def walkthrough(root: Path, task_id: str) -> Path:
    """The oracle as an agent's turns, a list of {thought, code}. Authored roots have one for every task."""
    return ground_truth(root, task_id) / "walkthrough.json"


def engine_variables(python: Path, root: Path) -> dict[str, str]:
    """Environment variables for a process of AppWorld's interpreter that works on the data under `root`.

    Without APPWORLD_CACHE the package writes into the home directory. Nothing else of the caller's environment
    is passed on but what a process needs: agents' code may read it.
    """
    cache = str(python.parent.parent / "cache")
    return kept_variables("PATH") | {"APPWORLD_ROOT": str(root.resolve()), "APPWORLD_CACHE": cache}


OFFICIAL_COUNTS: dict[Split, tuple[int, ...]] = {
    "train": (105, 90), "dev": (60, 57), "test_normal": (168,), "test_challenge": (417,),
}  # fmt: skip
"""Tasks per split of the official data: as first released and, where it differs, after later removals."""

_TASK_ID = re.compile(r"[0-9a-zA-Z]+_[0-9]+")
_SQLITE_HEADER = b"SQLite format 3\x00"


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
    if not root.is_dir():
        raise ArtifactError(f"{root}: no such folder; {_OBTAIN}")
    if not (root / "data").is_dir():
        hint = f"; give its parent {root.parent}" if (root / "base_dbs").is_dir() else f"; {_OBTAIN}"
        raise ArtifactError(f"{root}: no AppWorld root: it has no data folder{hint}")
    _check_databases(root)
    listed = {split: _read_dataset(root, split) for split in SPLITS}
    _check_unique(root, listed)
    denied = tuple(dict.fromkeys(denylist))
    for task_id in denied:
        if not _TASK_ID.fullmatch(task_id):
            raise ArtifactError(f"world.appworld.denylist: {task_id!r} is no task id (<scenario>_<number>)")
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


def _check_databases(root: Path) -> None:
    for app in DATABASES:
        path = base_database(root, app)
        if not path.is_file():
            raise ArtifactError(f"{path}: missing; the root is incomplete: {_OBTAIN}")
        with path.open("rb") as stream:
            if stream.read(len(_SQLITE_HEADER)) != _SQLITE_HEADER:
                raise ArtifactError(f"{path}: no SQLite database (half downloaded?); {_OBTAIN}")
    for app in APPS:
        _read_json(api_docs(root, app))


def _read_dataset(root: Path, split: Split) -> list[str]:
    path = dataset(root, split)
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
            raise ArtifactError(f"{dataset(root, split)}: duplicate task id {repeated[0]}")
    split_of_scenario: dict[str, Split] = {}
    for split, ids in listed.items():
        for task_id in ids:
            first = split_of_scenario.setdefault(_scenario(task_id), split)
            if first != split:
                raise ArtifactError(f"{dataset(root, split)}: {task_id}: its scenario is in the split {first} too")


def _read_task(root: Path, task_id: str, split: Split) -> Task:
    folder = task_folder(root, task_id)
    if not folder.is_dir():
        raise ArtifactError(f"{dataset(root, split)}: unknown task id {task_id}: there is no {folder}")
    _check_task_files(root, task_id)
    specs = _read_json(folder / "specs.json")
    version = specs.get("db_version")
    if version != DB_VERSION:
        raise ArtifactError(
            f"{folder / 'specs.json'}: db_version is {version!r}, but the engine reads {DB_VERSION!r}; "
            "get the data of that version, and no mixture of two downloads"
        )
    instruction = specs.get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise ArtifactError(f"{folder / 'specs.json'}: instruction is empty")
    path = ground_truth(root, task_id) / "metadata.json"
    difficulty = _read_json(path).get("difficulty")
    if difficulty not in (1, 2, 3):
        raise ArtifactError(f"{path}: difficulty is {difficulty!r}, not 1, 2 or 3")
    return Task(task_id, _scenario(task_id), int(difficulty), split, instruction)


def _check_task_files(root: Path, task_id: str) -> None:
    folder = task_folder(root, task_id)
    for app in DATABASES:
        if not ((folder / "dbs" / f"{app}.jsonl").is_file() or (folder / "dbs" / f"{app}.db").is_file()):
            raise ArtifactError(f"{folder / 'dbs' / app}.jsonl: missing (half downloaded?); {_OBTAIN}")
    for name in GROUND_TRUTH_FILES:
        path = ground_truth(root, task_id) / name
        if not path.is_file() or path.stat().st_size == 0:
            raise ArtifactError(f"{path}: missing or empty (half downloaded?); {_OBTAIN}")


def _read_json(path: Path) -> dict[str, Any]:
    damaged = f"half downloaded? {_OBTAIN}"
    return load_json(path, dict, missing=f"the root is incomplete: {_OBTAIN}", damaged=damaged)


def _scenario(task_id: str) -> str:
    return task_id.partition("_")[0]


_OBTAIN = (
    "get the official data anew with `appworld download data --root FOLDER` (removing the old folder first), "
    "or set world.appworld.source to authored"
)
