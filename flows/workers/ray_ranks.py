"""The ranks of an update on several machines, as actors of a Ray cluster. Imports Ray: import this module late."""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from flows.errors import StageFailed
from flows.hosts_at_work import shown_hosts
from flows.workers.content_cache import NeededFile, NeededFolder
from flows.workers.ray_cluster import LOOK_S, POLL_S, Cluster, run_on_ray
from flows.workers.ray_room import ClusterUnavailable, Room, name_of, workers_on
from flows.workers.remote_task import Missing, RemoteTask
from tasks.core.config.machines import RayConfig
from tasks.core.interfaces.stage import StageContext
from tasks.core.learner.launcher import AGAIN, KILLED, RankFailed
from tasks.core.learner.ranks import RemoteRank, meeting_point, train_rank
from tasks.core.learner.update_job import UpdateJob, read_files
from tasks.core.policies.loading import device
from tasks.core.records.files import remembered_digest

_REASON_S = 100
"""Seconds for the cause of a lost connection to show: more than those after which Ray counts a machine as lost."""
_log = logging.getLogger(__name__)
Work = Callable[[StageContext[Any], RemoteRank], Any]


class Rank:
    """The actor of a rank, whose process keeps its files from one call to the next."""

    def run(self, task: RemoteTask, sent: Mapping[str, Sequence[Any]]) -> Any:
        """Do `run_on_ray`."""
        return run_on_ray(task, sent)


def train_on_ray(
    cluster: Cluster, label: str, task_of: Callable[[Work, RemoteRank], RemoteTask], job: UpdateJob, output: Path
) -> None:
    """Run the ranks of `job`, the stage `label`; the main one is on this machine and writes into `output`.

    Raises RankFailed, ClusterUnavailable and what `run_remote` raises, after every rank has ended.
    """
    each, gpus = job.inputs.update.distributed.ranks, device(job.inputs.policy).type == "cuda"
    wanted = cluster.config.model_copy(update={"cpus_per_worker": each, "gpus_per_worker": each * gpus})
    with _machines(wanted, job.inputs.update.distributed.nodes) as (group, nodes), shown_hosts() as shown:
        places = [node for node in nodes for _ in range(each)]
        items = [RemoteRank(job, number, node["NodeManagerAddress"], output) for number, node in enumerate(places)]
        ranks, needs = _Ranks(cluster, label, [name_of(node) for node in places]), _needs(job)
        try:
            for number in range(len(places)):
                ranks.start(group, number // each, gpus=gpus)
            main, *_ = ranks.do([cluster.complete(task_of(meeting_point, item), needs) for item in items])
            _log.warning("%s: training on %s", label, ", ".join(map(name_of, nodes)))
            shown({name_of(node): "trains" for node in nodes})
            items = [replace(item, main=main) for item in items]
            ranks.do([cluster.complete(task_of(train_rank, item), needs) for item in items])
        finally:
            ranks.close()


class _Ranks:
    """The actors of an update."""

    def __init__(self, cluster: Cluster, label: str, places: Sequence[str]) -> None:
        """`places`: each rank's machine."""
        self._cluster, self._label, self._places = cluster, label, places
        self._actors: list[Any] = []

    def start(self, group: PlacementGroup, bundle: int, *, gpus: bool) -> None:
        """Start the next rank."""
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        self._actors.append(ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy=strategy)(Rank).remote())

    def do(self, tasks: Sequence[RemoteTask]) -> list[Any]:
        """Do each rank's task, all at the same time, and return their results. The first fault ends it.

        Of a rank that lost the others the cause is awaited, which is elsewhere.
        """
        running = {self._begin(rank, task): rank for rank, task in enumerate(tasks)}
        results, fault, deadline = dict[int, Any](), None, float("inf")
        while running and time.monotonic() < deadline:
            done, _ = ray.wait(list(running), num_returns=len(running), timeout=0)  # as for shards
            time.sleep(0 if done else POLL_S)
            for reference in done:
                rank = running.pop(reference)
                try:
                    results[rank] = ray.get(reference)
                except ray.exceptions.RayTaskError as failure:
                    if isinstance(failure.cause, StageFailed):
                        raise failure.cause from None
                    fault, deadline = fault or self._failed(rank, failure.cause), time.monotonic() + _REASON_S
                except ray.exceptions.ActorUnavailableError:  # dead or out of reach: Ray finds out which, so ask again
                    running[self._actors[rank].__ray_ready__.remote()] = rank
                    fault, deadline = self._lost(rank), min(deadline, time.monotonic() + _REASON_S)
                except ray.exceptions.RayError:
                    raise self._died(rank) from None
                if isinstance(missing := results.get(rank), Missing):
                    self._cluster.contents.send(tasks[rank].needs, missing.sha256s)
                    running[self._begin(rank, tasks[rank])] = rank
        if fault is not None:
            raise fault
        return [results[rank] for rank in range(len(tasks))]

    def close(self) -> None:
        """End all ranks."""
        for actor in self._actors:
            ray.kill(actor)

    def _begin(self, rank: int, task: RemoteTask) -> Any:
        return self._actors[rank].run.remote(task, self._cluster.contents.of(task.needs))

    def _failed(self, rank: int, error: BaseException) -> RankFailed:
        _log.info("%s", error)
        last = str(error).strip().rpartition("\n")[2]
        return RankFailed(f"{self._described(rank)} failed: {last}; nothing was saved")

    def _died(self, rank: int) -> RankFailed:
        lost = {name_of(node) for node in ray.nodes() if not node["Alive"]}
        if self._places[rank] in lost:
            return self._lost(rank)
        return RankFailed(f"{self._described(rank)} was killed{KILLED}{AGAIN}", signal.SIGKILL)

    def _lost(self, rank: int) -> RankFailed:
        return RankFailed(f"{self._described(rank)} is lost: the machine is down, or its link is cut{AGAIN}")

    def _described(self, rank: int) -> str:
        return f"{self._label}: host {self._places[rank]}: rank {rank} of {len(self._places)}"


@contextmanager
def _machines(wanted: RayConfig, count: int) -> Iterator[tuple[PlacementGroup, list[Mapping[str, Any]]]]:
    """Reserve `count` machines, this one first, and wait until there are so many. Raises ClusterUnavailable."""
    this = ray.get_runtime_context().get_node_id()
    here = next(node for node in ray.nodes() if node["NodeID"] == this)
    if not workers_on(here, wanted):
        raise ClusterUnavailable(
            f"update.distributed.nodes: the pipeline's machine is one of them; start Ray on {name_of(here)} with "
            f"{wanted.cpus_per_worker:g} CPUs and {wanted.gpus_per_worker:g} GPUs or more, for its ranks"
        )
    share = {"CPU": wanted.cpus_per_worker, "GPU": wanted.gpus_per_worker}
    bundles = [{kind: held for kind, held in share.items() if held} for _ in range(count)]
    bundles[0][f"node:{here['NodeManagerAddress']}"] = 0.001
    group, room = placement_group(bundles, strategy="STRICT_SPREAD"), Room(wanted, count)
    deadline = time.monotonic() + wanted.wait_s
    try:
        while not group.wait(0):
            if room.look(ray.nodes()) and time.monotonic() >= deadline:
                raise ClusterUnavailable(
                    "update.distributed.nodes: other work holds its machines (machines.ray.wait_s)"
                )
            time.sleep(LOOK_S)
        chosen = placement_group_table(group)["bundles_to_node_id"]
        nodes = {node["NodeID"]: node for node in ray.nodes()}
        yield group, [nodes[chosen[bundle]] for bundle in range(count)]
    finally:
        remove_placement_group(group)


def _needs(job: UpdateJob) -> tuple[NeededFolder, ...]:
    """Return what ranks read, by content: the base policy, and the files of iterations."""
    base, iterations = job.layout.base_policy, job.layout.iteration("*").parent
    files = [file for file in read_files(job) if file.is_relative_to(iterations)]
    named = tuple(NeededFile(file.relative_to(iterations).as_posix(), remembered_digest(file)) for file in files)
    return NeededFolder.of(base), NeededFolder(iterations, named)
