"""A connection to a Ray cluster, and tasks on it. Imports Ray: import this module late."""

import logging
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from flows.workers.remote_task import CODE, DEATHS, RemoteTask, WorkerDied, run_remote
from tasks.core.config.machines import RayConfig
from tasks.core.processes.shown_work import shown_work
from tasks.core.processes.usable_cores import CORES_VARIABLE

try:
    import ray
except ImportError as error:
    raise ImportError(f"machines.ray: {error}; run `pip install -e '.[ray]'`") from None

_CANCEL_S = 30
_POLL_S = 0.1


class ClusterUnavailable(RuntimeError):  # noqa: N818
    """There is no such Ray cluster, or none of its machines has what a worker needs."""


class Cluster:
    """Connected until `close`."""

    def __init__(self, config: RayConfig) -> None:
        """Connect. Raises ClusterUnavailable."""
        self._config = config
        _connect(config)
        try:
            _require_room(config)
        except BaseException:
            ray.shutdown()
            raise

    @property
    def places(self) -> int:
        """As many workers as the cluster's machines hold now."""
        return max(1, sum(_workers_on(node, self._config) for node in ray.nodes() if node["Alive"]))

    def run_remote(self, tasks: Sequence[RemoteTask], shards: Sequence["Future[Any]"]) -> None:
        """Complete `shards`, each with the result of one of `tasks`; after an error, cancel those that have none.

        Raises WorkerDied and what `run_remote` raises, after all others have ended.
        """
        config = self._config
        options = {"num_cpus": config.cpus_per_worker, "num_gpus": config.gpus_per_worker, "max_retries": DEATHS}
        # No decorator: what goes to a worker is pickled by name, and a decorated function's name is not the function's.
        play = ray.remote(**options)(run_remote).options(name="play_shard")
        try:
            _gather([play.remote(task) for task in tasks], tasks, shards)
        finally:
            for shard in shards:
                shard.cancel()

    def close(self) -> None:
        """Disconnect; Ray ends the workers."""
        ray.shutdown()


def _workers_on(node: Mapping[str, Any], config: RayConfig) -> int:
    held, wanted = node["Resources"], {"CPU": config.cpus_per_worker, "GPU": config.gpus_per_worker}
    return min(int(held.get(kind, 0) // count) for kind, count in wanted.items() if count > 0)


def _gather(references: Sequence[Any], tasks: Sequence[RemoteTask], shards: Sequence["Future[Any]"]) -> None:
    """Complete `shards` as Ray ends the tasks behind `references`. After the first error the others are stopped."""
    places, waiting = {reference: place for place, reference in enumerate(references)}, list(references)
    with shown_work("on Ray", sum(len(task.item) for task in tasks), "rollout", leave=True) as work:
        try:
            while waiting:
                # Ray would lose the exception of a SIGTERM that comes while it waits: wait in Python.
                done, waiting = ray.wait(waiting, timeout=0)
                if not done:
                    time.sleep(_POLL_S)
                for place in (places[reference] for reference in done):
                    _complete(shards[place], references[place], tasks[place])
                    work.advance(len(tasks[place].item))
        except BaseException as error:
            _stop(waiting, _CANCEL_S if isinstance(error, Exception) else 0)
            raise


def _complete(shard: "Future[Any]", reference: Any, task: RemoteTask) -> None:
    """Give `shard` what the task behind `reference` came to. Raises what it raised, and WorkerDied."""
    try:
        shard.set_result(ray.get(reference))
    except ray.exceptions.RayTaskError as failure:
        shard.set_exception(failure.cause)
        raise failure.cause from None
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
        reason = str(error).partition("\n")[0]
        died = WorkerDied(f"{task.item.description}: its worker died {DEATHS + 1} times; is memory short? {reason}")
        shard.set_exception(died)
        raise died from None


def _stop(references: Sequence[Any], patience_s: float) -> None:
    """End tasks that nobody waits for: kindly, then by force."""
    for reference in references:
        ray.cancel(reference)
    _, left = ray.wait(references, num_returns=len(references), timeout=patience_s) if references else ([], [])
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
    """Remove a variable for the block: workers of a DVC stage are pipelines of their own, with their own servers."""
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
