"""Recited episodes of a world on one core, verdicts included."""

import os
from collections.abc import Mapping, Sequence

import psutil
from processor_time import Clock

from tasks.core.interfaces.world import World


def stay_on_one_core() -> None:
    """Keep this process and all that it starts on the first core that it may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def recited(world: World, turns: Mapping[str, Sequence[str]], started_s: float) -> dict[str, float]:
    """Play each task's turns, close the world, and return the figures; `started_s`: how long its start took."""
    clock, solved = Clock(), 0
    for task_id, said in turns.items():
        episode = world.open(task_id, 0)
        for text in said:
            episode.step(text)
        solved += episode.evaluate().success
        episode.close()
    wall, cpu = clock.read()
    memory = {child.pid: child.memory_info().rss for child in psutil.Process().children(recursive=True)}
    world.close()
    return {
        "episodes": len(turns),
        "solved": solved,
        "turns": sum(map(len, turns.values())),
        "start_s": round(started_s, 2),
        "episodes_per_s_and_core": round(len(turns) / cpu, 1),
        "episodes_per_s": round(len(turns) / wall, 1),
        "largest_process_mb": round(max(memory.values()) / 2**20, 1),
    }
