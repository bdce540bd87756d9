"""The world: the package's tasks, played without a user or with one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.timings import ApiUsage
from tasks.core.text_games.task_files import read_tasks, write_tasks
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.conversing import ConversingEpisode
from tasks.core.worlds.tau2.episode import STOP, Tau2Episode
from tasks.core.worlds.tau2.kind import TAU2, Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import Tau2Task, official_tasks, parted
from tasks.core.worlds.tau2.users import ModelUser, ScriptedUser, SimulatedUser, UserServer, asking

FAREWELL = "That was all I could do."


class Tau2World(ListedTasks[Tau2Task]):
    """A `World`, `Demonstrating` and `Paying` (see `tasks.core.interfaces.world`)."""

    def __init__(self, tasks: Mapping[Split, Sequence[Tau2Task]], pool: Tau2Pool, config: Tau2Config) -> None:
        """Take tasks, processes and settings. Raises ChatApiError when a simulated user's server has no key."""
        super().__init__(tasks, described)
        self.pool, self._config = pool, config
        asks = config.mode == "user" and config.user.by == "model"
        self._users = UserServer(config.user) if asks else None

    def open(self, task_id: str, seed: int) -> Tau2Episode:
        """Start an episode; `seed` is the simulated user's. Raises KeyError, WorldFault and ChatApiError."""
        name, form = self.task(task_id).task_id, self._config.calls
        if self._config.mode == "solo":
            return Tau2Episode(self.pool, name, self._config.prompt, form)
        return ConversingEpisode(self.pool, name, form, self._user(name, seed))

    def demonstration(self, task_id: str) -> list[str]:
        """Return the official solution of a task, a call a turn; see `Demonstrating`. With a user: with the script."""
        solution = self.pool.solution(self.task(task_id).task_id)
        if self._config.mode == "solo":
            calls = [(call["name"], call["arguments"]) for call in solution.calls]
            return [call_text([call], self._config.calls) for call in [*calls, (STOP, {})]]
        return [*(self._turn(call) for call in solution.calls), " ".join([FAREWELL, *solution.tells])]

    def take_usage(self) -> ApiUsage | None:
        """Return what simulated users have cost since the last call; None: nothing is paid for."""
        return None if self._users is None else self._users.take_usage()

    def close(self) -> None:
        """End all processes and connections."""
        self.pool.close()
        if self._users is not None:
            self._users.close()

    def _user(self, task_id: str, seed: int) -> SimulatedUser:
        part = self.pool.task(task_id)["user"]
        return ScriptedUser(part) if self._users is None else ModelUser(self._users, part, task_id, seed)

    def _turn(self, call: Mapping[str, Any]) -> str:
        """Return the turn that has a call made: by the agent itself, or by the user."""
        if call["requestor"] == "user":
            return asking(call["name"], json.dumps(call["arguments"]))
        return call_text([(call["name"], call["arguments"])], self._config.calls)


def write_tau2(config: Tau2Config, seed: int, folder: Path) -> None:
    """Part the package's tasks into splits and write their lists. Raises InterpreterUnavailable."""
    pool = _pool(config)
    try:
        listed, official = pool.tasks()
    finally:
        pool.close()
    if config.domain != "telecom":
        parts = official_tasks(listed, official)
    else:
        shown = "ticket" if config.mode == "solo" else "reason"
        parts = parted(({**row, "ticket": row[shown]} for row in listed), official, config.train, seed)
    write_tasks(folder, parts)


def open_tau2(config: Tau2Config, code_blocks: CodeBlocks, folder: Path) -> Tau2World:
    """Open what `write_tau2` wrote. Raises ArtifactError, InterpreterUnavailable and ChatApiError."""
    return Tau2World(read_tasks(folder, Tau2Task), _pool(config), config)


def _pool(config: Tau2Config) -> Tau2Pool:
    return Tau2Pool(python_executable(INTERPRETERS, TAU2), domain=config.domain, mode=config.mode)
