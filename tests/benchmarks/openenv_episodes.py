"""Recited episodes per second: a world in this process, and the same one served by OpenEnv to as many sessions.

    PYTHONPATH=. python tests/benchmarks/openenv_episodes.py [--world pocketworld]

In this process a thread plays each of the 32 conversations; over the wire the package's own client does, one connection
each, its sessions reset for every episode. Rounds alternate; CPU seconds are of all processes together, the client's
among them.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openenv.core import GenericEnvClient
from processor_time import processor_s
from result_file import write_result

from flows.params_file import params_of
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tests.openenv_servers import served_world

SESSIONS, ROUNDS, SECONDS = 32, 5, 6.0
FEW = {
    "appworld": ["world.appworld.counts={train: 12, dev: 3, test_normal: 3, test_challenge: 3}"],
    "scienceworld": ["world.scienceworld.counts={train: 12, dev: 3, test_normal: 3, test_challenge: 3}"],
}
"""Knobs of worlds whose tasks take long to prepare."""
Turns = dict[str, list[str]]
"""Recited turns by task."""


def measure(name: str) -> dict[str, object]:
    knobs = FEW.get(name, [])
    config = params_of("default", [f"world.name={name}", f"collection.limits.max_turns={10**9}", *knobs]).world
    settings = [argument for knob in knobs for argument in ("--set", knob)]
    with tempfile.TemporaryDirectory() as folder, served_world(name, "--sessions", str(SESSIONS), *settings) as url:
        prepare_world_folder(config, Path(folder) / "world")
        world = open_world(config, Path(folder) / "world")
        turns = {task.task_id: world.demonstration(task.task_id) for task in world.tasks("train")[:96]}  # type: ignore[attr-defined]
        ways: dict[str, Callable[[], int]] = {
            "in_process": lambda: in_process(world, turns),
            "served": lambda: asyncio.run(served(url, turns)),
        }
        rounds: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for number in range(ROUNDS + 1):
            for way, play in ways.items():
                begin, cpu = time.perf_counter(), processor_s()
                episodes = play()
                figures = (episodes / (time.perf_counter() - begin), 1000 * (processor_s() - cpu) / episodes)
                if number:  # the first warms up
                    rounds[way].append(figures)
        world.close()
    rates = {way: statistics.median(rate for rate, _ in found) for way, found in rounds.items()}
    return {
        "sessions": SESSIONS,
        "served_over_in_process": round(rates["served"] / rates["in_process"], 3),
        "episodes_per_s": {way: round(rate, 1) for way, rate in rates.items()},
        "cpu_ms_per_episode": {
            way: round(statistics.median(ms for _, ms in found), 1) for way, found in rounds.items()
        },
    }


def in_process(world: World, turns: Turns) -> int:
    """Episodes played, all of them solved."""
    until = time.perf_counter() + SECONDS

    def conversation(first: int) -> int:
        played, names = 0, list(turns)
        while time.perf_counter() < until:
            name = names[(first + played * SESSIONS) % len(names)]
            episode = world.open(name, played)
            for text in turns[name]:
                episode.step(text)
            assert episode.evaluate().success
            episode.close()
            played += 1
        return played

    with ThreadPoolExecutor(SESSIONS) as pool:
        return sum(pool.map(conversation, range(SESSIONS)))


async def served(url: str, turns: Turns) -> int:
    """As well, over as many sessions of the server at `url`."""
    until = time.perf_counter() + SECONDS

    async def conversation(first: int) -> int:
        played, names = 0, list(turns)
        async with GenericEnvClient(url) as client:
            while time.perf_counter() < until:
                name = names[(first + played * SESSIONS) % len(names)]
                await client.reset(task_id=name, seed=played)
                for text in turns[name]:
                    result = await client.step({"text": text})
                assert result.observation["success"]
                played += 1
        return played

    return sum(await asyncio.gather(*map(conversation, range(SESSIONS))))


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run it in the repository's root"
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", default="pocketworld")
    name = parser.parse_args().world
    write_result(f"openenv_episodes_{name}", measure(name), packages=("openenv", "uvicorn", "websockets"))
