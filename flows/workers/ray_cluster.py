"""A connection to a Ray cluster, and tasks on it. Imports Ray: import this module late."""

import logging
import math
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flows.hosts_at_work import shown_hosts
from flows.workers.content_cache import NeededFolder, folders_in
from flows.workers.ray_room import ClusterUnavailable, Room, shards_on, workers_on
from flows.workers.remote_task import CODE, DEATHS, Missing, RemoteTask, WorkerDied, environment, run_remote
from tasks.core.config.machines import MachinesConfig, RayConfig
from tasks.core.policies.checkpoint_files import OPTIMIZER
from tasks.core.processes.resources import CORES_VARIABLE
from tasks.core.processes.shown_work import shown_work

try:
    import ray
    from ray._private.state import available_resources_per_node  # what `ray status` asks; public only without the nodes
    from ray.experimental import internal_kv  # the cluster's own store of small values
except ImportError as error:
    raise ImportError(f"machines.ray: {error}; run `pip install -e '.[ray]'`") from None

POLL_S, LOOK_S = 0.1, 1.0
_CANCEL_S = 30
_PIECE_BYTES = 2**24
_NOTES = "loopline"
_DEATHS_OF_WORKERS = (
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
)
_log = logging.getLogger(__name__)


class Cluster:
    """Connected until `close`."""

    def __init__(self, machines: MachinesConfig) -> None:
        """Connect, and wait for a machine that holds a worker. Raises ClusterUnavailable."""
        self.config = config = machines.ray
        self.contents = _Contents()
        self._room, self._cache_bytes = Room(config), machines.cache_gib * 2**30
        _connect(config)
        try:
            while not self._room.look(ray.nodes()):
                time.sleep(LOOK_S)
        except BaseException:
            ray.shutdown()
            raise

    @property
    def places(self) -> int:
        """As many workers as the cluster's machines hold now."""
        return max(1, sum(workers_on(node, self.config) for node in ray.nodes()))

    def run_remote(self, tasks: Sequence[RemoteTask], shards: Sequence["Future[Any]"]) -> None:
        """Complete `shards`, each with the result of one of `tasks`; after an error, cancel those that have none.

        Raises WorkerDied, ClusterUnavailable and what `run_remote` raises, after all others have ended.
        """
        config = self.config
        folders = {path: NeededFolder.of(path, {OPTIMIZER}) for task in tasks for path in _folders(task)}
        ready = [self.complete(task, tuple(folders[path] for path in _folders(task))) for task in tasks]
        options = {"num_cpus": config.cpus_per_worker, "num_gpus": config.gpus_per_worker, "max_retries": 0}
        # No decorator: what goes to a worker is pickled by name, and a decorated function's name is not the function's.
        play = ray.remote(**options)(run_on_ray).options(name="play_shard")
        try:
            self.contents.keep(folders.values())
            _Playing(play, self.contents, self._room).gather(ready, shards)
        finally:
            for shard in shards:
                shard.cancel()

    def complete(self, task: RemoteTask, needs: tuple[NeededFolder, ...]) -> RemoteTask:
        """Return a task with what another machine needs for it, and must have."""
        return replace(task, needs=needs, environment=environment(), cache_bytes=self._cache_bytes)

    def close(self) -> None:
        """Disconnect; Ray ends the workers."""
        with suppress(ray.exceptions.RayError):
            job = ray.get_runtime_context().get_job_id()
            internal_kv._internal_kv_del(f"{job}/", del_by_prefix=True, namespace=_NOTES)
        ray.shutdown()


def run_on_ray(task: RemoteTask, sent: Mapping[str, Sequence[Any]]) -> Any:
    """Do `run_remote` in a worker; `sent` has references to the pieces of files, by SHA-256.

    First leave a note of the machine: when a worker is killed, Ray does not say where it was.
    """
    here = ray.get_runtime_context()
    with suppress(ray.exceptions.RayError):
        internal_kv._internal_kv_put(f"{here.get_job_id()}/{here.get_task_id()}", here.get_node_id(), namespace=_NOTES)
    return run_remote(task, {sha256: partial(map, ray.get, pieces) for sha256, pieces in sent.items()})


def _folders(task: RemoteTask) -> list[Path]:
    return folders_in(task.layout.world, task.layout.base_policy, task.item)


class _Contents:
    """Files in Ray's object store, each put there once, when a machine first lacks it.

    After that, new files are put there before any machine asks: one that had to be sent files lacks those, too.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = {}
        self._known, self._lacked = set[str](), False

    def keep(self, folders: Collection[NeededFolder]) -> None:
        """Forget the files of other folders: those of earlier policies. Raises what `send` does."""
        kept = {sha256 for folder in folders for _, sha256 in folder.files}
        self._pieces = {sha256: pieces for sha256, pieces in self._pieces.items() if sha256 in kept}
        if self._lacked:
            self.send(folders, kept - self._known)
        self._known |= kept

    def send(self, needs: Iterable[NeededFolder], missing: Collection[str]) -> None:
        """Put files into the store. Raises ClusterUnavailable where it is full."""
        self._lacked = True
        for path, sha256 in ((need.path / name, sha256) for need in needs for name, sha256 in need.files):
            if sha256 in missing and sha256 not in self._pieces:
                try:
                    self._pieces[sha256] = [ray.put(piece) for piece in _pieces(path)]
                except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
                    raise ClusterUnavailable(
                        f"machines.ray: Ray's object store on {socket.gethostname()} has no room for {path}, nor has "
                        "its disk: free some, or start Ray there with a larger --object-store-memory or another "
                        f"--object-spilling-directory. Nothing is lost: run again ({str(error).partition(chr(10))[0]})"
                    ) from None

    def of(self, needs: Iterable[NeededFolder]) -> dict[str, list[Any]]:
        """Return the references to what was sent of these folders."""
        wanted = {sha256 for need in needs for _, sha256 in need.files}
        return {sha256: pieces for sha256, pieces in self._pieces.items() if sha256 in wanted}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


class _Playing:
    """Shards on their way. A shard whose worker died, or whose machine lacked files, is begun again."""

    def __init__(self, play: Any, contents: _Contents, room: Room) -> None:
        self._play, self._contents, self._room = play, contents, room
        self._deaths = Counter[int]()

    def gather(self, tasks: Sequence[RemoteTask], shards: Sequence["Future[Any]"]) -> None:
        """Complete `shards` as Ray ends the tasks. After the first error the others are stopped."""
        running = {self._begin(task): place for place, task in enumerate(tasks)}
        looked_at = time.monotonic()
        rollouts = sum(len(task.item) for task in tasks)
        with shown_work("on Ray", rollouts, "rollout", leave=True) as work, shown_hosts() as hosts:
            try:
                while running:
                    # Ray would lose the exception of a SIGTERM that comes while it waits: wait in Python.
                    done, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                    if not done:
                        time.sleep(POLL_S)
                        if time.monotonic() - looked_at >= LOOK_S:
                            self._room.look(nodes := ray.nodes())
                            hosts(shards_on(nodes, available_resources_per_node(), self._room.config))
                            looked_at = time.monotonic()
                    for reference in done:
                        place = running.pop(reference)
                        if self._complete(place, shards[place], reference, tasks[place]):
                            work.advance(len(tasks[place].item))
                        else:
                            running[self._begin(tasks[place])] = place
            except BaseException as error:
                _stop(list(running), _CANCEL_S if isinstance(error, Exception) else 0)
                raise

    def _begin(self, task: RemoteTask) -> Any:
        return self._play.remote(task, self._contents.of(task.needs))

    def _complete(self, place: int, shard: "Future[Any]", reference: Any, task: RemoteTask) -> bool:
        """Give `shard` what the task behind `reference` came to; return False where it has to be begun again.

        Raises what the task raised, WorkerDied and ClusterUnavailable.
        """
        try:
            result = ray.get(reference)
        except ray.exceptions.RayTaskError as failure:
            shard.set_exception(failure.cause)
            raise failure.cause from None
        except _DEATHS_OF_WORKERS as error:
            self._note_death(place, shard, task, _place(reference), error)
            return False
        if isinstance(result, Missing):
            self._contents.send(task.needs, result.sha256s)
            return False
        shard.set_result(result)
        return True

    def _note_death(self, place: int, shard: "Future[Any]", task: RemoteTask, node: str, error: Exception) -> None:
        """Warn of a worker's death. Raises WorkerDied after too many over the same shard."""
        self._deaths[place] += 1
        deaths, where = self._deaths[place], self._room.where(ray.nodes(), node, str(error))
        died = f"{task.item.description}: its worker died"
        if deaths > DEATHS:
            times, reason = f"{deaths} times, at last{where or ' somewhere'}", str(error).partition("\n")[0]
            shard.set_exception(ended := WorkerDied(f"{died} {times}; is memory short? {reason}"))
            raise ended from None
        _log.warning("%s%s; is memory short? Another one plays it again (%d of %d)", died, where, deaths, DEATHS)


def _place(reference: Any) -> str:
    """Return the id of the machine whose worker left a note for this task; "" where none did."""
    key = f"{ray.get_runtime_context().get_job_id()}/{reference.task_id().hex()}"
    return (internal_kv._internal_kv_get(key, namespace=_NOTES) or b"").decode()


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
