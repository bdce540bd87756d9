"""Collection by one process of this machine and by several, in turns: rollouts/s of one iteration of a profile.

    python tests/benchmarks/rollout_processes.py PROFILE [--variants 1x1 2x1 2x2] [--rounds 3] [--set a.b=c ...]

A variant is SHARDSxPROCESSES; ratios are those to the first one. Each keeps its processes, engines and worlds warm from
round to round: `first_s` is its first collection, which starts them. All must write the same bytes.

Wall-clock seconds say little on a machine that does other work too, where two processes get a larger share than one.
`least_s` is what a collection takes at least on two cores of its own: the processor time of all processes over two, or
that of the busiest process, whichever is more.
"""

import argparse
import os
import statistics
import time
from contextlib import closing
from typing import Any, NamedTuple

import psutil
from result_file import write_result
from stages_in_process import Project, temporary_project

from flows.dag.stages import find_stage
from flows.params_file import params_of
from flows.workers.executors import executor_of
from tasks.collect_rollouts import collect_rollouts
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.records.layout import Layout

CORES = 2
KEY = "i001"


class Took(NamedTuple):
    """What one collection took."""

    wall_s: float
    processor_s: float
    least_s: float
    load: float


class Variant:
    """Collection in so many shards by so many processes, which stay until it is closed."""

    def __init__(self, params: Params, layout: Layout, name: str) -> None:
        self.shards, self.processes = map(int, name.split("x"))
        collection = params.collection.model_copy(update={"shards": self.shards})
        machines = params.machines.model_copy(update={"processes": self.processes})
        settings = params.model_copy(update={"collection": collection, "machines": machines})
        stage, self._cache = find_stage("collect_rollouts"), ProcessCache()
        inputs, executor = CollectionInputs.of(settings), executor_of(stage, settings)
        self._context = StageContext(layout, inputs, KEY, self._cache, executor)
        self.took: list[Took] = []

    def collect(self) -> bytes:
        """Collect once; return the rollouts as they are written."""
        before, load, begun = _processor_s(), os.getloadavg()[0], time.perf_counter()
        collect_rollouts(self._context)
        wall, after = time.perf_counter() - begun, _processor_s()
        each = [seconds - before.get(process, 0.0) for process, seconds in after.items()]
        self.took.append(Took(wall, sum(each), max(sum(each) / CORES, *each), load))
        return self._context.layout.rollouts(KEY).read_bytes()

    def close(self) -> None:
        """End its processes."""
        self._cache.close()


def _processor_s() -> dict[tuple[int, float], float]:
    """Return the processor seconds of each process at and below this one; a parent's include its ended children's."""
    me = psutil.Process()
    each = (me, *me.children(recursive=True))
    return {(process.pid, process.create_time()): float(sum(process.cpu_times()[:4])) for process in each}


def figures_of(variant: Variant, base: Variant, rollouts: int) -> dict[str, Any]:
    """Return the medians of a variant's warm collections, and of the ratios to the base's of the same round."""
    first, *warm = variant.took
    pairs = list(zip(base.took[1:], warm, strict=True))
    return {
        "shards": variant.shards,
        "processes": variant.processes,
        "first_s": round(first.wall_s, 2),
        "wall_s": round(statistics.median(each.wall_s for each in warm), 2),
        "rollouts_per_s": round(rollouts / statistics.median(each.wall_s for each in warm), 1),
        "processor_s": round(statistics.median(each.processor_s for each in warm), 2),
        "processor_s_ratio": round(statistics.median(each.processor_s / one.processor_s for one, each in pairs), 2),
        "least_s": round(statistics.median(each.least_s for each in warm), 2),
        "speed_up": round(statistics.median(one.wall_s / each.wall_s for one, each in pairs), 2),
        "least_s_ratio": round(statistics.median(one.least_s / each.least_s for one, each in pairs), 2),
        "loads": [round(each.load, 1) for each in warm],
    }


def measure(params: Params, project: Project, names: list[str], rounds: int) -> dict[str, Any]:
    """Collect with each variant in turn. Raises RuntimeError where one of them changes a byte."""
    project.prepare()
    variants, written = [Variant(params, project.layout, name) for name in names], set[bytes]()
    try:
        for _ in range(rounds + 1):
            for variant in variants:
                written.add(variant.collect())
                if len(written) > 1:
                    raise RuntimeError(f"{variant.shards} shards by {variant.processes} processes wrote other bytes")
    finally:
        for variant in variants:
            variant.close()
    rollouts = params.collection.tasks_per_iteration * params.collection.rollouts_per_task
    return {
        "rollouts": rollouts,
        "variants": {
            name: figures_of(variant, variants[0], rollouts) for name, variant in zip(names, variants, strict=True)
        },
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="Collection by one process and by several.")
    parser.add_argument("profile", help='as on the command line of `loopline configure`: "headroom"')
    parser.add_argument("--variants", nargs="+", default=["1x1", "2x1", "2x2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    params = params_of(asked.profile, asked.set)
    with temporary_project(params) as project, closing(project):
        figures = measure(params, project, asked.variants, asked.rounds)
    write_result(f"rollout_processes_{asked.profile.replace(' ', '_')}", {"profile": asked.profile, **figures})


if __name__ == "__main__":
    main()
