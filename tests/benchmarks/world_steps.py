"""Steps per second of the text games on one core, and an original-sized catalogue of WebShop.

    python tests/benchmarks/world_steps.py [--catalogue 1180000]

A step is an action of the game: read from the turn's text, played, its page or map shown; episodes are opened and
closed in between, as a rollout does. Actions are random ones of those that the state offers, five to a turn where the
world takes so many. Seconds are the process's own, so that what else the machine does is not counted. `--catalogue`
opens a generated catalogue of so many products and searches it: peak of resident memory, processor seconds to open
and index, and the median and slowest of 200 searches, wall clock, and the median of their processor time.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

from result_file import write_result

from tasks.core.config.world import WorldConfig, WorldSection
from tasks.core.interfaces.world import Episode, World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.text_games.prompt import answer_text
from tasks.core.worlds.webshop.authoring import KINDS, MAKERS, draw_catalogue
from tasks.core.worlds.webshop.catalogue import ProductFile
from tasks.core.worlds.webshop.kind import WebShopConfig
from tasks.core.worlds.webshop.shop import OFFER, SearchEngine
from tasks.core.worlds.webshop.world import CATALOGUE

SECONDS, ROUNDS, SEARCHES = 2.0, 5, 200
DIRECTIONS = ("Left", "Down", "Right", "Up")
WORLDS = {
    "frozen_lake": WorldSection.of("frozen_lake"),
    "sokoban": WorldSection.of("sokoban"),
    "webshop": WorldSection.of("webshop", webshop=WebShopConfig(products=10_000)),
}


def rates(config: WorldConfig) -> dict[str, int]:
    """Rates of the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        prepare_world_folder(config, Path(folder) / "world")
        world = open_world(config, Path(folder) / "world")
        measured = [steps_per_s(world, Random(number)) for number in range(ROUNDS)]
    return {"median": round(statistics.median(measured)), "best": round(max(measured))}


def steps_per_s(world: World, random: Random) -> float:
    """Actions that were played per processor second."""
    names, steps = [task.task_id for task in world.tasks("train")], 0
    begin = time.process_time()
    while time.process_time() - begin < SECONDS:  # a pass over all tasks between looks at the clock, which cost much
        steps += sum(_play(world.open(name, random.getrandbits(62)), random) for name in names)
    return steps / (time.process_time() - begin)


def _play(episode: Episode, random: Random) -> int:
    """Play an episode; the number of its actions."""
    shown, steps, done = episode.prompt[-1]["content"], 0, False
    while not done:
        seen = episode.step(answer_text(_actions(shown, random), "x"))
        shown, steps, done = seen.text, steps + len(seen.api_calls), seen.done
    episode.evaluate()
    episode.close()
    return steps


def _actions(shown: str, random: Random) -> list[str]:
    offered = shown.partition(OFFER)[2].partition(".\n")[0]
    if offered.startswith("search["):
        return [f"search[{_query(random)}]"]
    return [random.choice(offered.split(", "))] if offered else random.choices(DIRECTIONS, k=5)


def _query(random: Random) -> str:
    kind = random.choice(KINDS)
    return f"{kind.name} {random.choice(MAKERS)} {' '.join(random.sample(kind.attributes, 2))}"


def catalogue(products: int) -> dict[str, float]:
    """Write, then index and search in a process of its own, whose memory is that of the catalogue alone."""
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
        path = Path(folder) / CATALOGUE
        with path.open("w", encoding="utf-8") as stream:
            drawn = draw_catalogue(WebShopConfig(products=products), 0)
            stream.writelines(product.model_dump_json() + "\n" for product in drawn)
        return pool.apply(_searched, (path,))


def _searched(path: Path) -> dict[str, float]:
    begin = time.process_time()
    known = ProductFile(path)
    engine, random, waits = SearchEngine(known.texts()), Random(0), []
    opened = time.process_time() - begin
    for _ in range(SEARCHES):
        query, begin, processor = _query(random), time.perf_counter(), time.process_time()
        assert engine.search(query)
        waits.append((1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - processor)))
    wall, computing = zip(*waits, strict=True)
    return {
        "products": len(known),
        "open_and_index_s": round(opened, 1),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "search_ms": round(statistics.median(wall), 1),
        "slowest_search_ms": round(max(wall), 1),
        "search_processor_ms": round(statistics.median(computing), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--catalogue", type=int, help="products")
    products = parser.parse_args().catalogue
    if products is None:
        figures = {name: rates(config) for name, config in WORLDS.items()}
        write_result("world_steps", {"steps_per_s": figures}, packages=("gymnasium", "bm25s", "numpy"))
    else:
        write_result("webshop_catalogue", catalogue(products), packages=("bm25s", "numpy"))


if __name__ == "__main__":
    main()
