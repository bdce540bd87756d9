"""The rollouts of a stage on the machines of a Ray cluster, a Ray task for each shard.

Imports Ray only where there is a shard to play, and Prefect never: a subclass may show shards there.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from flows.dag.stages import Stage
from tasks.core.config.machines import RayConfig
from tasks.core.interfaces.stage import Item, StageContext, T


class RayExecutor:
    """The workers of one stage; the connection to the cluster is kept warm from stage to stage."""

    def __init__(self, stage: Stage, config: RayConfig) -> None:
        self._stage, self._config = stage, config

    def shown(self, shards: Sequence[tuple[str, "Future[Any]"]]) -> AbstractContextManager[object]:
        """Show shards, each a description and its coming result, while they are played. Here: not at all."""
        return nullcontext()

    def map(
        self, work: Callable[[StageContext[Any], Item], T], context: StageContext[Any], items: Sequence[Item]
    ) -> list[T]:
        """Raises ClusterUnavailable, WorkerDied, StageFailed (a shard failed with an error that says all)."""
        from flows.dag.version_stages import code_version
        from flows.workers.ray_cluster import Cluster
        from flows.workers.remote_task import CODE, RemoteTask

        code = code_version(self._stage, CODE)
        tasks = [
            RemoteTask(self._stage.name, work, item, context.layout, context.inputs, context.key, Path.cwd(), code)
            for item in items
        ]
        cluster = context.cache.get("ray", self._config, lambda: Cluster(self._config))
        shards = [Future[T]() for _ in items]
        with self.shown([(item.description, shard) for item, shard in zip(items, shards, strict=True)]):
            cluster.run_remote(tasks, shards)
        return [shard.result() for shard in shards]
