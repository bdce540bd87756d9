"""Who does the work of a stage: this process, several processes of this machine, or a Ray cluster."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flows.dag.stage_code import InUse, code_version
from flows.dag.stages import Stage, stage_label
from flows.workers.remote_task import CODE, RemoteTask
from tasks.core.config.machines import MachinesConfig
from tasks.core.config.params import Params
from tasks.core.interfaces.engine_kind import find_engine
from tasks.core.interfaces.stage import Executor, Item, ProcessCache, SerialExecutor, StageContext, T
from tasks.core.processes.resources import usable_cores

if TYPE_CHECKING:
    from flows.workers.ray_cluster import Cluster

NOTICING = {"RAY_grpc_client_keepalive_time_ms": "60000", "RAY_grpc_client_keepalive_timeout_ms": "20000"}
"""How soon this process notices that a link is cut under a shard: after 80 s, by Ray's own defaults after 420 s. Ray's
servers end a connection that is asked for a sign of life more than once a minute."""


Shown = Callable[[Sequence[tuple[str, "Future[Any]"]]], AbstractContextManager[object]]
"""Shows shards, each a description and its coming result, while they are played."""


class Workers(Protocol):
    """Workers that play shards: processes of this machine, or machines of a Ray cluster."""

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

    def __init__(self, stage: Stage, workers: Callable[[ProcessCache], Workers], shown: Shown) -> None:
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


def executor_of(stage: Stage, params: Params, shown: Shown = lambda shards: nullcontext()) -> Executor:
    """Return what plays the shards of `stage` as the section `machines` says, `shown` meanwhile."""
    if not stage.plays:
        return SerialExecutor()
    if params.machines.ray.address is not None:
        return ShardExecutor(stage, lambda cache: _cluster(cache, params.machines), shown)
    count = process_count(params)
    return ShardExecutor(stage, lambda cache: _processes(cache, count), shown) if count > 1 else SerialExecutor()


def ranks_of(stage: Stage, key: str, params: Params, cache: ProcessCache) -> Callable[[Any, Path], None] | None:
    """Return what runs the ranks of an update on `update.distributed.nodes` machines; None where this one does."""
    if params.update.distributed.nodes == 1:
        return None

    def train(job: Any, output: Path) -> None:
        cluster = _cluster(cache, params.machines)
        from flows.workers.ray_ranks import train_on_ray  # imports Ray

        code = code_version(stage, CODE, InUse.by(params))

        def task_of(work: Callable[[Any, Any], Any], item: Any) -> RemoteTask:
            return RemoteTask(stage.name, work, item, job.layout, params, key, job.root, code)

        train_on_ray(cluster, stage_label(stage.name, key), task_of, job, output)

    return train


def process_count(params: Params) -> int:
    """Return how many processes of this machine play rollouts: no more than there are shards.

    `auto` is one for each core, and one where processes would share a GPU, a server or an API's rate limits.
    """
    wanted, shards = params.machines.processes, params.collection.shards
    if wanted == "auto":
        divides = shards != 1 and find_engine(params.engine.name).uses_cores(params.policy)
        wanted = usable_cores() if divides else 1
    return wanted if shards == "auto" else min(wanted, shards)


def _cluster(cache: ProcessCache, config: MachinesConfig) -> "Cluster":
    for name, value in NOTICING.items():
        os.environ.setdefault(name, value)
    from flows.workers.ray_cluster import Cluster  # imports Ray, which reads them now

    return cache.get("ray", config, lambda: Cluster(config))


def _processes(cache: ProcessCache, count: int) -> Workers:
    from flows.workers.worker_processes import WorkerProcesses

    return cache.get("worker_processes", count, lambda: WorkerProcesses(count))
