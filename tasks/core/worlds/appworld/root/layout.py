"""Places of things in a root. The only module out here that spells these paths."""

from pathlib import Path

APPS = (
    "api_docs",
    "supervisor",
    "amazon",
    "phone",
    "file_system",
    "spotify",
    "venmo",
    "gmail",
    "splitwise",
    "simple_note",
    "todoist",
)
DATABASES = ("admin", *APPS)
DB_VERSION = "0.1.0"
GROUND_TRUTH_FILES = (
    "evaluation.py",
    "answer.json",
    "public_data.json",
    "private_data.json",
    "test_data.json",
    "metadata.json",
)


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
