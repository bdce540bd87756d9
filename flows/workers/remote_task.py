"""Work on an item that was sent to another process or machine. Knows neither Ray nor Prefect."""

import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flows.dag.stage_code import InUse, code_version
from flows.dag.stages import find_stage
from flows.errors import is_expected, picklable_error
from tasks.core.config.section import Section
from tasks.core.interfaces.stage import ProcessCache, StageContext, WorkItem
from tasks.core.processes.process_memory import spare_old_objects
from tasks.core.records.layout import Layout

CODE = Path(__file__).resolve().parents[2]
"""The folder of the code that this process runs."""
DEATHS = 3
"""Times that a shard whose worker dies is begun again."""


class WorkerDied(RuntimeError):  # noqa: N818
    """Workers kept dying over the same shard."""


class StaleCode(RuntimeError):  # noqa: N818
    """A worker's code is not the pipeline's."""


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


def run_remote(task: RemoteTask) -> Any:
    """Do the item of `task` with what this process has loaded.

    Raises StaleCode; StageFailed with the message of an error that was expected; RuntimeError with the traceback of any
    other, since a traceback does not travel.
    """
    try:
        _require_same_code(task)
        os.chdir(task.folder)
        return task.work(StageContext(task.layout, task.inputs, task.key, _process_cache()), task.item)
    except Exception as error:
        if is_expected(error):
            raise picklable_error(error) from None
        raise RuntimeError(f"in a worker on {socket.gethostname()}:\n{traceback.format_exc()}") from None


def close_process_cache() -> None:
    """Close all that this process has loaded for items."""
    _process_cache().close()


def _require_same_code(task: RemoteTask) -> None:
    if _code_version(task.stage, InUse.by(task.inputs)) != task.code:
        raise StaleCode(
            f"{task.stage}: the code in {CODE} on {socket.gethostname()} is not the pipeline's; share the project's "
            "folder, or bring both to the same commit"
        )


@cache
def _code_version(stage: str, used: InUse) -> str:
    return code_version(find_stage(stage), CODE, used)


@cache
def _process_cache() -> ProcessCache:
    """Return this process's cache, which keeps world, engine and chat format from item to item."""
    spare_old_objects()
    return ProcessCache()
