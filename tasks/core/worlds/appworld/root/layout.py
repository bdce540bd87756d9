"""Places of things in a root. The only module out here that spells these paths."""

from pathlib import Path

from tasks.core.confinement.process_pool import kept_variables

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


def engine_variables(python: Path, root: Path) -> dict[str, str]:
    """Environment variables for a process of AppWorld's interpreter that works on the data under `root`.

    Without APPWORLD_CACHE the package writes into the home directory. Nothing else of the caller's environment
    is passed on but what a process needs: agents' code may read it.
    """
    cache = str(python.parent.parent / "cache")
    return kept_variables("PATH") | {"APPWORLD_ROOT": str(root.resolve()), "APPWORLD_CACHE": cache}
