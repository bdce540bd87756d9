"""What the pipeline's machine pays for each shard on Ray, and what a delivery takes: constants of scale_on_paper.py.

    python tests/benchmarks/ray_costs.py

One machine with a Ray cluster of its own. The shards are real ones of the profile `default` (8 of 144 rollouts, played
once on that cluster); afterwards workers answer with such a result at once, so that what is left is the pipeline's own
work: `run_remote` of 16 to 256 shards (processor seconds of this process, all threads), and the calls that it makes,
each by itself (processor seconds of the calling thread). `wait_s` is one look at so many shards under way. A delivery's
pieces go into the object store, out of it, and into the files of a host: wall-clock seconds, which a busy machine makes
longer.
"""

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from result_file import write_result
from stages_in_process import Project, temporary_project

from flows.dag.stages import find_stage
from flows.params_file import params_of
from flows.workers import ray_cluster
from flows.workers.content_cache import ContentCache
from flows.workers.needed_folders import NeededFile
from flows.workers.remote_task import RemoteTask
from flows.workers.shard_executor import ShardExecutor
from tasks.collect_rollouts import collect_rollouts
from tasks.core.config.machines import MachinesConfig, RayConfig
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.files import digest
from tasks.core.rollouts.shards import PlayedRollouts, Shard

KEY, SHARDS, ROUNDS = "i001", 8, 3
COUNTS = (16, 64, 256)
WAITED_FOR = (16, 64, 256, 1024, 4096)
FILE_BYTES = 2**28
_results: dict[Path, PlayedRollouts] = {}


@dataclass(frozen=True)
class Recited:
    """A shard whose result is known."""

    shard: Shard
    result: Path

    @property
    def description(self) -> str:
        return self.shard.description

    def __len__(self) -> int:
        return len(self.shard)


def recite(context: StageContext[Any], item: Recited) -> PlayedRollouts:
    """Return the known result, without playing."""
    if item.result not in _results:
        _results[item.result] = pickle.loads(item.result.read_bytes())
    return _results[item.result]


class Recorder:
    """A cluster that keeps what it was last asked and what came of it."""

    def __init__(self, cluster: ray_cluster.Cluster) -> None:
        self.cluster, self.tasks, self.results = cluster, list[RemoteTask](), list[PlayedRollouts]()
        self.places = SHARDS

    def run_remote(self, tasks: Sequence[RemoteTask], shards: "Sequence[Future[Any]]") -> None:
        self.cluster.run_remote(tasks, shards)
        self.tasks, self.results = list(tasks), [shard.result() for shard in shards]


def played(project: Project, recorder: Recorder) -> None:
    """Collect once, in so many shards."""
    stage, params = find_stage("collect_rollouts"), params_of("default")
    collection = params.collection.model_copy(update={"shards": SHARDS})
    inputs = CollectionInputs.of(params.model_copy(update={"collection": collection}))
    executor = ShardExecutor(stage, lambda cache: recorder)
    with closing(ProcessCache()) as cache:
        collect_rollouts(StageContext(project.layout, inputs, KEY, cache, executor))


def whole_runs(recorder: Recorder, recited: Sequence[RemoteTask]) -> list[dict[str, Any]]:
    """Return wall seconds, and this process's, of `run_remote` of so many shards: the medians of all rounds."""
    found = []
    for count in COUNTS:
        tasks = [recited[number % len(recited)] for number in range(count)]
        took = []
        for _ in range(ROUNDS):
            before, begun = time.process_time(), time.perf_counter()
            recorder.run_remote(tasks, [Future() for _ in tasks])
            took.append((time.perf_counter() - begun, time.process_time() - before))
        wall, processor = (statistics.median(column) for column in zip(*took, strict=True))
        found.append({"shards": count, "wall_s": round(wall, 3), "processor_s": round(processor, 3)})
    return found


def single_calls(ray: Any, tasks: Sequence[RemoteTask]) -> dict[str, Any]:
    """Return the seconds of each call that a shard costs, the medians."""
    play = ray.remote(num_cpus=1, max_retries=0)(ray_cluster.run_on_ray)
    begun, got = list[float](), list[float]()
    for _ in range(ROUNDS):
        references = [begin(play, task, begun) for task in tasks]
        ray.wait(references, num_returns=len(references))
        got += [of_this_thread(lambda reference=reference: ray.get(reference)) for reference in references]
    return {"begin_s": statistics.median(begun), "get_s": statistics.median(got)}


def begin(play: Any, task: RemoteTask, spent: list[float]) -> Any:
    """Begin a task; add the seconds that it took to `spent`."""
    references: list[Any] = []
    spent.append(of_this_thread(lambda: references.append(play.remote(task, {}))))
    return references[0]


def looks(ray: Any) -> dict[str, float]:
    """Return the seconds of one look at so many shards under way, which have no room to run."""
    nobody = ray.remote(num_cpus=1000, max_retries=0)(recite)
    found = {}
    for count in WAITED_FOR:
        references = [nobody.remote(None, None) for _ in range(count)]
        look = partial(ray.wait, references, num_returns=count, timeout=0)
        found[str(count)] = statistics.median(of_this_thread(look) for _ in range(100))
        for reference in references:
            ray.cancel(reference)
    return found


def delivery(ray: Any) -> dict[str, float]:
    """Return seconds for each GiB of a delivery: the best of all rounds."""
    rounds = [one_delivery(ray) for _ in range(ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in rounds[0]}


def one_delivery(ray: Any) -> dict[str, float]:
    """Send pieces into the store, receive them, place them among a host's files, and find them there."""
    per_gib = 2**30 / FILE_BYTES
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights"
        file.write_bytes(bytes(bytearray(range(256)) * (FILE_BYTES // 256)))
        references: list[Any] = []
        sent = timed(lambda: references.extend(ray.put(piece) for piece in ray_cluster._pieces(file)))
        pieces: list[bytes] = []
        received = timed(lambda: pieces.extend(map(ray.get, references)))
        cache, name = ContentCache(Path(folder) / "cache", 2**40), digest(file)
        needs = {Path(folder) / "policy": [NeededFile("weights", name)]}
        placed = timed(lambda: cache.place(needs, {name: lambda _: pieces}))
        kept = timed(lambda: cache.place(needs, {}))
    spent = {"sent": sent, "received": received, "placed": placed, "checked": kept}
    return {f"{name}_s_per_gib": round(seconds * per_gib, 3) for name, seconds in spent.items()}


def timed(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that `call` takes."""
    begun = clock()
    call()
    return clock() - begun


def of_this_thread(call: Callable[[], Any]) -> float:
    """Return the processor seconds that `call` takes in this thread."""
    return timed(call, time.thread_time)


def main() -> None:
    from ray import cloudpickle

    ray = ray_cluster.ray
    with (
        temporary_project(params_of("default")) as project,
        closing(ray_cluster.Cluster(MachinesConfig(ray=RayConfig(address="local")))) as cluster,
    ):
        project.prepare()
        recorder = Recorder(cluster)
        first = timed(partial(played, project, recorder))
        real, results = recorder.tasks, recorder.results
        recited = []
        for number, (task, result) in enumerate(zip(real, results, strict=True)):
            file = project.layout.root / f"result_{number}.pickle"
            file.write_bytes(pickle.dumps(result))
            recited.append(replace(task, work=recite, item=Recited(task.item, file)))
        recorder.run_remote(recited, [Future() for _ in recited])
        figures = {
            "rollouts_per_shard": statistics.mean(len(task.item) for task in real),
            "shard_bytes": statistics.mean(len(cloudpickle.dumps(task)) for task in real),
            "result_bytes": statistics.mean(len(pickle.dumps(result)) for result in results),
            "first_collection_s": round(first, 2),
            "whole_runs": whole_runs(recorder, recited),
            **single_calls(ray, recited),
            "wait_s": looks(ray),
            **delivery(ray),
        }
    write_result("ray_costs", figures, ("ray",))


if __name__ == "__main__":
    main()
