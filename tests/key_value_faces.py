"""Two faces of worlds beside key_value: one that a tiny policy learns in seconds, and one that shows nothing.

Entry points of a test name them, once `loopline_key_value` can be imported.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from loopline_key_value.kind import WORLD
from loopline_key_value.settings import KeyValueConfig
from loopline_key_value.world import StoreTask

from tasks.core.config.splits import SPLITS
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.text_games.task_files import read_tasks, write_tasks


def _write_deletions(settings: KeyValueConfig, seed: int, folder: Path) -> None:
    """Write tasks that delete one entry of a store."""
    WORLD.write(settings, seed, folder)
    drawn = read_tasks(folder, StoreTask)
    write_tasks(folder, {split: [_deletion(task) for task in drawn[split]] for split in SPLITS})


def _open_mute(settings: KeyValueConfig, code_blocks: CodeBlocks, folder: Path) -> World:
    """Open a store whose solutions nobody knows."""
    known: Any = WORLD.open(settings, code_blocks, folder)
    return cast(World, SimpleNamespace(tasks=known.tasks, open=known.open, close=known.close))


def _deletion(task: StoreTask) -> StoreTask:
    return task.model_copy(update={"changes": {next(iter(task.changes)): None}})


DELETIONS, MUTE = replace(WORLD, write=_write_deletions), replace(WORLD, open=_open_mute)
