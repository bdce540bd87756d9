"""Steps per second of the text games on one core.

    python tests/benchmarks/world_steps.py

A step is an action of the game: read from the turn's text, played, its page or map shown; episodes are opened and
closed in between, as a rollout does. Actions are random ones of those that the state offers, five to a turn where the
world takes so many. Seconds are the process's own, so that what else the machine does is not counted.
"""

import statistics
import tempfile
import time
from pathlib import Path
from random import Random

from result_file import write_result

from tasks.core.config.world import WorldConfig, WorldSection
from tasks.core.interfaces.world import Episode, World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.text_games.episode import answer_text
from tasks.core.worlds.webshop.authoring import KINDS, MAKERS
from tasks.core.worlds.webshop.kind import WebShopConfig
from tasks.core.worlds.webshop.shop import OFFER

SECONDS, ROUNDS = 2.0, 5
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


if __name__ == "__main__":
    figures = {name: rates(config) for name, config in WORLDS.items()}
    write_result("world_steps", {"steps_per_s": figures}, packages=("gymnasium", "bm25s", "numpy"))
