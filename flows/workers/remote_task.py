"""Work on an item that was sent to another process or machine. Knows neither Ray nor Prefect."""

import os
import platform
import socket
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flows.dag.stage_code import InUse, code_version
from flows.dag.stages import find_stage
from flows.errors import StageFailed, is_expected, picklable_error
from flows.workers.content_cache import ContentCache, NeededFolder, OwnProject, Sent, cache_folder, moved
from tasks.core.config.section import Section
from tasks.core.interfaces.stage import ProcessCache, StageContext, WorkItem
from tasks.core.processes.resources import spare_old_objects
from tasks.core.records.layout import Layout

CODE = Path(__file__).resolve().parents[2]
"""The folder of the code that this process runs."""
PACKAGES = ("loopline", "torch", "transformers")
"""Requirements on a worker besides the code and Python, so that it plays the same rollouts."""
DEATHS = 3
"""Times that a shard whose worker dies is begun again."""


class WorkerDied(RuntimeError):  # noqa: N818
    """Workers kept dying over the same shard."""


class StaleCode(RuntimeError):  # noqa: N818
    """A worker's code, or what it runs with, is not the pipeline's."""


@dataclass(frozen=True)
class RemoteTask:
    """One item of a stage. Can be pickled."""

    stage: str
    work: Callable[[StageContext[Any], Any], Any]
    item: WorkItem
    layout: Layout
    inputs: Section
    key: str
    folder: Path
    """The folder in which the pipeline runs, and hence the worker."""
    code: str
    """Digest of the code that the stage runs, on the pipeline's machine."""
    needs: tuple[NeededFolder, ...] = ()
    """Folders that a machine without them has to be sent; empty where all workers are on the pipeline's machine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions that a worker must have; empty where it runs in the pipeline's own environment."""
    cache_bytes: float = 0
    """The most that a machine without that folder keeps."""


@dataclass(frozen=True)
class Missing:
    """The answer of a worker that did nothing yet, since its machine lacks files."""

    sha256s: tuple[str, ...]


def run_remote(task: RemoteTask, sent: Sent | None = None) -> Any:
    """Do the item of `task` with what this process has loaded; return Missing where files have to be sent first.

    Raises StaleCode; StageFailed with the message of an error that was expected, of a full disk with this host's name;
    RuntimeError with the traceback of any other, since a traceback does not travel.
    """
    try:
        _require_same(task)
        places = _places(task, sent or {})
        if isinstance(places, Missing):
            return places
        os.chdir(places[task.folder])
        layout, item = moved(task.layout, places), moved(task.item, places)
        return task.work(StageContext(layout, task.inputs, task.key, _process_cache()), item)
    except Exception as error:
        if isinstance(error, OSError) and is_expected(error):
            raise StageFailed(f"host {socket.gethostname()}: {error}") from None
        if is_expected(error):
            raise picklable_error(error) from None
        raise RuntimeError(f"in a worker on {socket.gethostname()}:\n{traceback.format_exc()}") from None


def environment() -> dict[str, str]:
    """Return the versions of this process's Python and packages."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Return the first difference of a worker from the pipeline in words, None if there is none.

    A build is none: a pipeline without a GPU may have workers with one ("2.9.1+cpu" and "2.9.1+cu128").
    """
    for name, wanted in ours.items():
        found = theirs.get(name, "none")
        if found.partition("+")[0] != wanted.partition("+")[0]:
            return f"{name} {found}, the pipeline has {wanted}"
    return None


def close_process_cache() -> None:
    """Close all that this process has loaded for items."""
    _process_cache().close()


def _require_same(task: RemoteTask) -> None:
    """Raise StaleCode where this machine has other versions or other code than the pipeline's."""
    host = f"host {socket.gethostname()}"
    if found := difference(environment(), task.environment):
        raise StaleCode(f"{host}: {found}; install .ci/constraints.txt's versions on both (.ci/setup.sh)")
    if _code_version(task.stage, InUse.by(task.inputs)) != task.code:
        raise StaleCode(
            f"{host}: {task.stage}: the code in {CODE} is not the pipeline's; bring both to the same commit"
        )


def _places(task: RemoteTask, sent: Sent) -> Mapping[Path, Path] | Missing:
    """Return where the pipeline's folders are on this machine: where they are there, or in a folder of its own."""
    if task.folder.is_dir():
        os.chdir(task.folder)  # where digests of large files are remembered
        if all(need.is_here() for need in task.needs):
            return {task.folder: task.folder}
    own = _process_cache().get(
        "own_project", "", lambda: OwnProject(ContentCache(cache_folder(), task.cache_bytes), CODE)
    )
    missing = own.fill(task.folder, task.needs, sent)
    return Missing(tuple(missing)) if missing else own.places(task.folder, task.needs)


@cache
def _code_version(stage: str, used: InUse) -> str:
    return code_version(find_stage(stage), CODE, used)


@cache
def _process_cache() -> ProcessCache:
    """Return this process's cache, which keeps world, engine and chat format from item to item."""
    spare_old_objects()
    return ProcessCache()
