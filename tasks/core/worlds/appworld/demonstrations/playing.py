"""Demonstrations of a whole root."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tasks.core.interfaces.world import Episode, Message
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.worlds.appworld.demonstrations.demonstrator import Demonstrator, read_steps
from tasks.core.worlds.appworld.demonstrations.habits import IMPERFECT, PERFECT, Habits
from tasks.core.worlds.appworld.episode import AppWorldEpisode
from tasks.core.worlds.appworld.kind import APPWORLD, AppWorldConfig
from tasks.core.worlds.appworld.pool import EpisodePool
from tasks.core.worlds.appworld.root import layout


@dataclass(frozen=True)
class Demonstration:
    """One played episode."""

    task_id: str
    imperfect: bool
    messages: list[Message]
    success: bool


def play_demonstrations(
    root: Path, perfect: int, imperfect: int, workers: int = 2, tasks: int | None = None
) -> Iterator[Demonstration]:
    """Play every task of the split `demonstrations` so many times each way, in order; the first `tasks` if given.

    The same root gives the same demonstrations, whatever `workers` (episodes at once).
    """
    ids = layout.dataset(root, "demonstrations").read_text(encoding="utf-8").split()[:tasks]
    habits = [(PERFECT, "perfect", number) for number in range(perfect)]
    habits += [(IMPERFECT, "imperfect", number) for number in range(imperfect)]
    pool = EpisodePool(python_executable(INTERPRETERS, APPWORLD), root)
    try:
        with ThreadPoolExecutor(workers) as threads:
            jobs = [
                threads.submit(_play, root, pool.open, task_id, habit, f"{root.name}:{task_id}:{kind}:{number}")
                for task_id in ids
                for habit, kind, number in habits
            ]
            for job in jobs:
                yield job.result()
    finally:
        pool.close()


def _play(
    root: Path, open_session: Callable[[str], "object"], task_id: str, habits: Habits, seed: str
) -> Demonstration:
    episode: Episode = AppWorldEpisode(open_session(task_id), AppWorldConfig())  # type: ignore[arg-type]
    try:
        demonstrator = Demonstrator(episode, read_steps(root, task_id), habits, Random(seed))
        demonstrator.play()
        return Demonstration(task_id, habits is IMPERFECT, demonstrator.messages, episode.evaluate().success)
    finally:
        episode.close()
