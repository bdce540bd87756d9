"""The pool: warm processes in which episodes run, kept healthy."""

import dataclasses
import threading
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

from tasks.core.confinement.inside.frames import encode
from tasks.core.confinement.process_pool import Confinement, Keep, ProcessPool, WarmProcess, Zygote
from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.appworld.pool.limits import PoolLimits
from tasks.core.worlds.appworld.pool.live_episode import LiveEpisode, Verdict, facts_of
from tasks.core.worlds.appworld.pool.task_data import TaskData, read_task_data
from tasks.core.worlds.appworld.root.layout import engine_variables

_ZYGOTE = "tasks.core.worlds.appworld.inside.episodes.zygote"


class EpisodePool:
    """Opens live episodes. Thread-safe; nothing runs before the first `open`.

    A zygote that broke is replaced by a new one when the next episode opens; the episodes that lived on the broken one
    end with a WorldFault of their own, no other episode is touched. A world serves again only after an episode in which
    nothing failed.
    """

    def __init__(
        self, python: Path, root: Path, limits: PoolLimits | None = None, confinement: Confinement = "auto"
    ) -> None:
        self.limits = limits = limits or PoolLimits()
        self._root = root
        self._places = threading.BoundedSemaphore(limits.max_concurrent_episodes)
        self._lock = threading.Lock()
        uses, cpu = limits.episodes_per_process, limits.world_cpu_seconds / 2
        self._processes = ProcessPool(
            partial(start_zygote, python, root, limits, confinement),
            world=Keep(limits.idle_worlds, uses, cpu),
            evaluator=Keep(limits.idle_evaluators, uses, cpu),
        )
        self._tasks: OrderedDict[str, TaskData] = OrderedDict()

    def open(self, task_id: str) -> LiveEpisode:
        """A fresh episode of a task. Waits while `limits.max_concurrent_episodes` are open. Raises WorldFault."""
        if not self._places.acquire(timeout=self.limits.waiting_seconds):
            raise WorldFault(f"no place for another episode: {self.limits.max_concurrent_episodes} are open")
        try:
            task = self._task(task_id)
            world = self._processes.take("world", task.frame)
        except BaseException:
            self._places.release()
            raise
        return LiveEpisode(task, world, self.limits, self)

    def facts(self, task_id: str) -> dict[str, Any]:
        """Facts about a task at its opening. Raises WorldFault."""
        task = self._task(task_id)
        return facts_of(task, self._processes.zygote(task.frame))

    def evaluate_saved(self, task_id: str, changes: dict[str, list[Any]], hashes: dict[str, Any]) -> Verdict:
        """The verdict on a state that the official server saved: all changes of each app since the base databases.

        Raises WorldFault.
        """
        task = self._task(task_id)
        own = {app: statements[len(task.changes.get(app, ())) :] for app, statements in changes.items()}
        return self.evaluate(task, encode({"changes": own, "hashes": hashes}))

    def evaluate(self, task: TaskData, state: bytes) -> Verdict:
        """See `live_episode.Lender`."""
        seconds, subject = self.limits.evaluation_seconds, f"the evaluation of task {task.task_id}"
        message = self._processes.ask("evaluator", task.frame + state, seconds, subject, task.frame)
        return Verdict(tuple(message["passed"]), tuple(message["failed"]), message["status"], message["question"])

    def give_back(self, world: WarmProcess | None) -> None:
        """See `live_episode.Lender`."""
        if world is not None:
            self._processes.give_back(world)
        self._places.release()

    @property
    def lasting_pids(self) -> list[int]:
        """Processes that live on between episodes: the zygote, the engine, idle worlds and evaluators."""
        return self._processes.pids

    def close(self) -> None:
        """End all processes. Idempotent; episodes that are left raise WorldFault when used."""
        self._processes.close()

    def _task(self, task_id: str) -> TaskData:
        """Read once, as long as it is among the last `limits.known_tasks`."""
        with self._lock:
            task = self._tasks.get(task_id)
        task = task or read_task_data(self._root, task_id)
        with self._lock:
            self._tasks[task_id] = task
            self._tasks.move_to_end(task_id)
            while len(self._tasks) > self.limits.known_tasks:
                self._tasks.popitem(last=False)
        return task


def start_zygote(python: Path, root: Path, limits: PoolLimits, confinement: Confinement, task_frame: bytes) -> Zygote:
    """Start a zygote that forks, with an engine warm from a task's data. `root` holds `data/`. Raises WorldFault."""
    settings = {**dataclasses.asdict(limits), "confinement": confinement}
    command = [str(python), "-P", "-s"]
    zygote = Zygote("AppWorld", command, _ZYGOTE, settings, engine_variables(python, root))
    zygote.ready(limits.start_seconds, task_frame)
    return zygote
