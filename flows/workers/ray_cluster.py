"""A connection to a Ray cluster, and the Prefect flow whose tasks run there. Imports both: import this module late."""

import contextvars
import logging
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.context import TaskRunContext
from tqdm import tqdm

from flows.workers.remote_task import CODE, RemoteTask, run_remote
from tasks.core.config.machines import RayConfig
from tasks.core.processes.usable_cores import CORES_VARIABLE

try:
    import ray
    from prefect_ray import RayTaskRunner
    from prefect_ray.context import remote_options
    from prefect_ray.task_runners import PrefectRayFuture
except ImportError as error:
    raise ImportError(f"machines.ray: {error}; run `pip install -e '.[ray]'`") from None

DEATHS = 3
"""How often a shard whose worker dies is begun again."""
_CANCEL_S = 30
_POLL_S = 0.1
_remote_tasks: contextvars.ContextVar[tuple[Sequence[RemoteTask], RayConfig]] = contextvars.ContextVar("tasks")


class ClusterUnavailable(RuntimeError):  # noqa: N818
    """There is no such Ray cluster, or none of its machines has what a worker needs."""


class WorkerDied(RuntimeError):  # noqa: N818
    """Workers kept dying over the same shard."""


class Cluster:
    """Connected until `close`."""

    def __init__(self, config: RayConfig) -> None:
        """Raises ClusterUnavailable."""
        self._config = config
        _connect(config)
        try:
            _require_room(config)
        except BaseException:
            ray.shutdown()
            raise

    def run_remote(self, tasks: Sequence[RemoteTask], label: str) -> list[Any]:
        """What became of each task. Raises WorkerDied and what `run_remote` raises, after all others have ended."""
        context = contextvars.copy_context()
        # prefect-ray sends the calling task's context along, whose parameters (DVC's objects) can't be pickled.
        context.run(TaskRunContext.__var__.set, None)  # type: ignore[arg-type]
        context.run(_remote_tasks.set, (tasks, self._config))
        return context.run(_shards_flow.with_options(flow_run_name=f"{label}, shards"))

    def close(self) -> None:
        """Disconnect; Ray ends the workers."""
        ray.shutdown()


def _shards() -> list[Any]:
    """Every task as a task on Ray. Remote tasks are no parameters: Prefect would send all of them with each task."""
    tasks, config = _remote_tasks.get()
    with remote_options(num_cpus=config.cpus_per_worker, num_gpus=config.gpus_per_worker, max_retries=DEATHS):
        futures = [_shard.with_options(task_run_name=task.item.description).submit(task) for task in tasks]
    return _gathered(futures, tasks)


# No decorators: what goes to a worker is pickled by name, and the name of a decorated function is not the function's.
_shard = task(name="play_shard", cache_policy=NO_CACHE, persist_result=False)(run_remote)
_shards_flow = flow(name="shards", task_runner=RayTaskRunner(), validate_parameters=False)(_shards)


def _gathered(futures: Sequence[PrefectRayFuture[Any]], tasks: Sequence[RemoteTask]) -> list[Any]:
    """All results. After the first error the others are stopped."""
    places = {future.wrapped_future: place for place, future in enumerate(futures)}
    results: dict[int, Any] = {}
    waiting = list(places)
    with tqdm(total=sum(len(task.item) for task in tasks), desc="on Ray", disable=None) as bar:
        try:
            while waiting:
                # Ray would lose Prefect's exception of a SIGTERM that comes while it waits: wait in Python.
                done, waiting = ray.wait(waiting, timeout=0)
                if not done:
                    time.sleep(_POLL_S)
                for place in (places[reference] for reference in done):
                    results[place] = _result(futures[place], tasks[place])
                    bar.update(len(tasks[place].item))
        except Exception:
            _stop(waiting)
            raise
    return [results[place] for place in range(len(tasks))]


def _result(future: PrefectRayFuture[Any], task: RemoteTask) -> Any:
    """What a task that has ended came to. Raises what it raised, and WorkerDied."""
    try:
        return future.result()
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkerDied(
            f"{task.item.description}: its worker died {DEATHS + 1} times; is memory short? {reason}"
        ) from None


def _stop(references: list[Any]) -> None:
    """End tasks that nobody waits for: kindly, then by force."""
    for reference in references:
        ray.cancel(reference)
    _, left = ray.wait(references, num_returns=len(references), timeout=_CANCEL_S) if references else ([], [])
    for reference in left:
        ray.cancel(reference, force=True)


def _connect(config: RayConfig) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    on_sigterm, cores = signal.getsignal(signal.SIGTERM), str(math.ceil(config.cpus_per_worker))
    try:
        with _without("DVC_STAGE"):
            ray.init(
                address=config.address,
                include_dashboard=False if config.address == "local" else None,
                runtime_env={"env_vars": {"PYTHONPATH": str(CODE), CORES_VARIABLE: cores}},
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterUnavailable(f"machines.ray.address: {config.address}: {error}") from None
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray takes it for its own


@contextmanager
def _without(variable: str) -> Iterator[None]:
    """Workers started by DVC's stage are pipelines of their own, with servers of their own."""
    value = os.environ.pop(variable, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[variable] = value


def _require_room(config: RayConfig) -> None:
    """Ray would wait forever for a machine that is not there."""
    wanted = {"CPU": config.cpus_per_worker, "GPU": config.gpus_per_worker}
    nodes: list[Mapping[str, float]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in nodes):
        raise ClusterUnavailable(
            f"machines.ray: a worker needs {wanted['CPU']:g} CPUs and {wanted['GPU']:g} GPUs; no machine has them"
        )
