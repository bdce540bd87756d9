"""Two faces of worlds beside key_value: one that a tiny policy learns in seconds, and one that shows nothing.

Entry points of a test name them, once `loopline_key_value` can be imported.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from loopline_key_value.kind import KeyValue
from loopline_key_value.settings import KeyValueConfig
from loopline_key_value.world import StoreTask

from tasks.core.config.splits import SPLITS
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.text_games.task_files import read_tasks, write_tasks


class Deletions(KeyValue):
    """Delete one entry of a store."""

    def write(self, settings: KeyValueConfig, seed: int, folder: Path) -> None:
        super().write(settings, seed, folder)
        drawn = read_tasks(folder, StoreTask)
        write_tasks(folder, {split: [_deletion(task) for task in drawn[split]] for split in SPLITS})


class Mute(KeyValue):
    """A store whose solutions nobody knows."""

    def open(self, settings: KeyValueConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        known: Any = super().open(settings, code_blocks, folder)
        return cast(World, SimpleNamespace(tasks=known.tasks, open=known.open, close=known.close))


def _deletion(task: StoreTask) -> StoreTask:
    return task.model_copy(update={"changes": {next(iter(task.changes)): None}})


DELETIONS, MUTE = Deletions(), Mute()
