"""data/world/ of AppWorld: the task list and, when authored, the root itself, written by the generator, as one file."""

import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from filelock import FileLock
from tqdm import tqdm

from tasks.core.config.splits import SPLITS, Split
from tasks.core.interfaces.world import Task
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.processes.resources import SPARING
from tasks.core.records.files import ArtifactError, digest, read_json, replacing, write_json
from tasks.core.worlds.appworld.kind import APPWORLD, ROOTS, AppWorldConfig
from tasks.core.worlds.appworld.layout import RootReport, engine_variables, verify_root

_TIME = 315_532_800
"""Modification time of every file in an archive, the first second of 1980."""


def pack_root(root: Path, archive: Path) -> None:
    """Write the files of `root` to `archive`, an uncompressed tar. Same files, same bytes."""
    with replacing(archive) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as stream:
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


_PACKAGE = Path(__file__).parent
_START = (
    f"{SPARING}; import json, sys; "
    "sys.path.append({package!r}); "
    "from inside.authoring.main import author_root; author_root(**json.loads({arguments!r}))"
)
_SHOWN_LINES = 20


class AuthoringFailed(RuntimeError):  # noqa: N818
    """The generator stopped; the message holds its last lines. A bug: the same seed fails again."""


def author_root(root: Path, python: Path, seed: int, counts: Mapping[Split, int] | Mapping[str, int]) -> None:
    """Write a root with `counts` tasks per split to `root`, whole or not at all. Same arguments, same bytes.

    Beside the four splits there may be `demonstrations`, with the words of train and all templates that may be shown.

    `python` is AppWorld's interpreter (`interpreter.python_executable`). Raises AuthoringFailed, and ValueError for
    counts that are no whole number of scenarios of three tasks.
    """
    for split, count in counts.items():
        if count <= 0 or count % 3:
            raise ValueError(f"{split}: {count} tasks; a split has a positive number of scenarios of 3 tasks")
    with replacing(root) as temporary:
        temporary.mkdir()
        _run_generator(temporary, python, seed, counts)


def _run_generator(root: Path, python: Path, seed: int, counts: Mapping[Split, int] | Mapping[str, int]) -> None:
    arguments = json.dumps({"root": str(root.resolve()), "seed": seed, "counts": dict(counts)})
    command = [str(python), "-P", "-c", _START.format(package=str(_PACKAGE), arguments=arguments)]
    with subprocess.Popen(
        command,
        env=engine_variables(python, root),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=root,
        start_new_session=True,
    ) as process:
        try:
            said = _follow(process, sum(counts.values()))
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the generator's own processes too
            raise
    if process.returncode != 0:
        raise AuthoringFailed(f"the generator of the AppWorld root failed (exit {process.returncode}):\n{said}")


def _follow(process: "subprocess.Popen[str]", total: int) -> str:
    """Move the bar at each `done` line; returns the last other lines."""
    assert process.stdout is not None
    others: list[str] = []
    with tqdm(total=total, desc="authoring AppWorld tasks", unit="task", leave=False) as bar:
        for line in process.stdout:
            if line == "done\n":
                bar.update()
            else:
                others = [*others, line][-_SHOWN_LINES:]
    return "".join(others)


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
    package = Path(__file__).parent
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
