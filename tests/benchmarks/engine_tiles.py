"""What the engine's promise costs: collection with tiles and without, in turns, by processor time.

    python tests/benchmarks/engine_tiles.py PROFILE [--pairs 5] [--set a.b=c ...]

Both keep their engines and worlds warm; the first collection of each is not counted. `ratio` is the median over the
pairs of processor seconds with tiles over those without, of all processes.
"""

import argparse
import os
import statistics
from contextlib import closing
from typing import Any

from processor_time import Clock
from result_file import write_result
from stages_in_process import Project, temporary_project

from flows.params_file import params_of
from tasks.collect_rollouts import collect_rollouts
from tasks.core.config.params import Params
from tasks.core.config.stage_inputs import CollectionInputs
from tasks.core.engines.transformers import self_check
from tasks.core.engines.transformers.tiles import FREE, LADDER, Tiles
from tasks.core.interfaces.stage import ProcessCache, StageContext

KEY = "i001"


class Collection:
    """Collection by an engine whose tiles are the first of `ladder` with which its self-check holds."""

    def __init__(self, params: Params, project: Project, ladder: tuple[Tiles, ...]) -> None:
        self._ladder, self._cache = ladder, ProcessCache()
        self._context = StageContext(project.layout, CollectionInputs.of(params), KEY, self._cache)
        self.seconds: list[float] = []

    def collect(self) -> None:
        """Collect once. Its first collection opens the engine."""
        self_check.LADDER = self._ladder
        self_check._FOUND.clear()
        clock = Clock()
        collect_rollouts(self._context)
        self.seconds.append(clock.read()[1])

    def close(self) -> None:
        """End its worlds and its engine."""
        self._cache.close()


def measure(params: Params, project: Project, pairs: int) -> dict[str, Any]:
    """Collect with tiles and without in turns."""
    project.prepare()
    tiled, free = Collection(params, project, LADDER), Collection(params, project, (FREE,))
    with closing(tiled), closing(free):
        for _ in range(pairs + 1):
            tiled.collect()
            free.collect()
    ratios = [one / other for one, other in zip(tiled.seconds[1:], free.seconds[1:], strict=True)]
    return {
        "tiled_s": [round(each, 2) for each in tiled.seconds[1:]],
        "free_s": [round(each, 2) for each in free.seconds[1:]],
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="What the engine's tiles cost.")
    parser.add_argument("profile", help='as on the command line of `loopline configure`: "default"')
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    params = params_of(asked.profile, asked.set)
    with temporary_project(params) as project, closing(project):
        figures = measure(params, project, asked.pairs)
    write_result(f"engine_tiles_{asked.profile.replace(' ', '_')}", {"profile": asked.profile, **figures})


if __name__ == "__main__":
    main()
