"""The shards of a stage's rollouts on workers: processes of this machine, or machines of a Ray cluster."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from flows.dag.stage_code import InUse, code_version
from flows.dag.stages import Stage
from flows.workers.remote_task import CODE, RemoteTask
from tasks.core.interfaces.stage import Item, ProcessCache, StageContext, T

Shown = Callable[[Sequence[tuple[str, "Future[Any]"]]], AbstractContextManager[object]]
"""Shows shards, each a description and its coming result, while they are played."""


class Workers(Protocol):
    """Workers that play shards."""

    @property
    def places(self) -> int:
        """How many shards they play at once."""
        ...

    def run_remote(self, tasks: Sequence[RemoteTask], shards: Sequence["Future[Any]"]) -> None:
        """Complete `shards`, each with the result of one of `tasks`; after an error, cancel those that have none.

        Raises WorkerDied and what `remote_task.run_remote` raises, after all others have ended.
        """
        ...


class ShardExecutor:
    """The workers of one stage, kept warm from stage to stage in the cache of its context."""

    def __init__(
        self, stage: Stage, workers: Callable[[ProcessCache], Workers], shown: Shown = lambda shards: nullcontext()
    ) -> None:
        """Without `shown`, shards are not shown."""
        self._stage, self._workers, self._shown = stage, workers, shown

    def places(self, context: StageContext[Any]) -> int:
        """Raises ClusterUnavailable."""
        return self._workers(context.cache).places

    def map(
        self, work: Callable[[StageContext[Any], Item], T], context: StageContext[Any], items: Sequence[Item]
    ) -> list[T]:
        """Raises WorkerDied, StageFailed (a shard failed with an error that says all), and ClusterUnavailable."""
        code = code_version(self._stage, CODE, InUse.by(context.inputs))
        stage, layout, folder = self._stage.name, context.layout, Path.cwd()
        tasks = [RemoteTask(stage, work, item, layout, context.inputs, context.key, folder, code) for item in items]
        workers = self._workers(context.cache)
        shards = [Future[T]() for _ in items]
        with self._shown([(item.description, shard) for item, shard in zip(items, shards, strict=True)]):
            workers.run_remote(tasks, shards)
        return [shard.result() for shard in shards]
