"""The rollouts of a stage on the machines of a Ray cluster, each shard a Prefect task on prefect-ray's task runner.

Imports neither Ray nor Prefect before there is a shard to play.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.dag.stages import Stage, stage_label
from tasks.core.config.machines import RayConfig
from tasks.core.config.params import Params
from tasks.core.interfaces.stage import Executor, Item, SerialExecutor, StageContext, T


def executor_for(stage: Stage, params: Params) -> Executor:
    """Who plays the rollouts of `stage`: Ray's workers where params.yaml names a cluster, else this process."""
    config = params.machines.ray
    return RayExecutor(stage, config) if stage.plays and config.address is not None else SerialExecutor()


class RayExecutor:
    """The workers of one stage; the connection to the cluster is kept warm from stage to stage."""

    def __init__(self, stage: Stage, config: RayConfig) -> None:
        self._stage, self._config = stage, config

    def map(
        self, work: Callable[[StageContext[Any], Item], T], context: StageContext[Any], items: Sequence[Item]
    ) -> list[T]:
        """Raises ClusterUnavailable, WorkerDied, StageFailed (a shard failed with an error that says all)."""
        from flows.dag.versions import code_version
        from flows.workers.ray_cluster import Cluster
        from flows.workers.remote_task import CODE, RemoteTask

        code = code_version(self._stage, CODE)
        tasks = [
            RemoteTask(self._stage.name, work, item, context.layout, context.inputs, context.key, Path.cwd(), code)
            for item in items
        ]
        cluster = context.cache.get("ray", self._config, lambda: Cluster(self._config))
        return cluster.run_remote(tasks, stage_label(self._stage.name, context.key))
