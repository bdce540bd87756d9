"""data/world/ of AppWorld: the task list and, when authored, the root itself as one file."""

from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from filelock import FileLock

from tasks.core.config.splits import SPLITS, Split
from tasks.core.interfaces.world import Task
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.files import ArtifactError, digest, read_json, replacing, write_json
from tasks.core.worlds.appworld.kind import APPWORLD, ROOTS, AppWorldConfig
from tasks.core.worlds.appworld.root.archive import pack_root, unpack_root
from tasks.core.worlds.appworld.root.authored import author_root
from tasks.core.worlds.appworld.root.verification import RootReport, verify_root

_TASKS = "tasks.json"
_ARCHIVE = "root.tar"


@dataclass(frozen=True)
class PreparedRoot:
    """A verified root and its tasks."""

    root: Path
    tasks: dict[Split, tuple[Task, ...]]


def prepare_root(config: AppWorldConfig, seed: int, folder: Path) -> RootReport:
    """Author or verify the root that `config` names and write `folder`, whole or not at all.

    Raises ArtifactError for an official root that is not whole, InterpreterUnavailable and AuthoringFailed.
    """
    with replacing(folder) as temporary:
        temporary.mkdir(parents=True)
        root = config.root
        if root is None:
            copyfile(_kept_archive(config, seed), temporary / _ARCHIVE)
            root = unpack_root(temporary / _ARCHIVE, ROOTS)
        report = verify_root(root, config.denylist)
        document = _document(report)
        if config.root is not None:  # episodes read its files in place: what they read is in this artifact
            document["data_sha256"] = digest(root / "data")
        write_json(temporary / _TASKS, document)
    return report


def write_appworld(config: AppWorldConfig, seed: int, folder: Path) -> None:
    """Prepare the root and print what it holds. Raises as `prepare_root` does."""
    print(f"AppWorld root: {prepare_root(config, seed, folder).summary}")


def read_prepared_root(config: AppWorldConfig, folder: Path) -> PreparedRoot:
    """Read what `prepare_root` wrote. Raises ArtifactError naming the file."""
    document = read_json(folder / _TASKS)
    root = config.root or unpack_root(folder / _ARCHIVE, ROOTS)
    if not (root / "data" / "tasks").is_dir():
        raise ArtifactError(f"{root}: the AppWorld root is gone; put it back or run `dvc repro prepare_world`")
    try:
        tasks = {split: tuple(Task(**task) for task in document["tasks"][split]) for split in SPLITS}
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{folder / _TASKS}: {error!r}; delete the folder and run `dvc repro`") from None
    return PreparedRoot(root.resolve(), tasks)


def _kept_archive(config: AppWorldConfig, seed: int) -> Path:
    """Return the archive of the root that `config` asks for, authored once: it takes minutes.

    Its name says what its bytes depend on: the generator's code, the engine's requirements, seed and counts.
    """
    package = Path(__file__).parents[1]
    files = [*sorted((package / "inside/authoring").rglob("*.py")), APPWORLD.requirements]
    inputs = ([digest(file) for file in files], seed, config.counts.by_split)
    archive = ROOTS / f"{sha256(repr(inputs).encode()).hexdigest()[:16]}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(archive.with_name(f".{archive.name}.lock")):  # runs of a study ask at the same time
        if not archive.is_file():
            with TemporaryDirectory(prefix="loopline-appworld-") as folder:
                author_root(
                    Path(folder) / "root", python_executable(INTERPRETERS, APPWORLD), seed, config.counts.by_split
                )
                pack_root(Path(folder) / "root", archive)
    return archive


def _document(report: RootReport) -> dict[str, object]:
    return {
        "listed": dict(report.listed),
        "official_counts": report.official_counts,
        "denied": list(report.denied),
        "tasks": {split: [asdict(task) for task in tasks] for split, tasks in report.tasks.items()},
    }
