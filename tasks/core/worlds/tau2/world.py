"""The world: the package's tasks, played without a user or with one, and a score as the package's results file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import ExecutionTimeout
from tasks.core.interfaces.world_kind import ScoredEpisode, ScoredTrials
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.records.timings import ApiUsage
from tasks.core.text_games.task_files import read_tasks, write_tasks
from tasks.core.tool_calls import call_text
from tasks.core.worlds.tau2.episode import MAX_ERRORS, MAX_STEPS, STOP, ConversingEpisode, Tau2Episode
from tasks.core.worlds.tau2.kind import TAU2, Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import Tau2Task, official_tasks, parted
from tasks.core.worlds.tau2.users import SAMPLING, ModelUser, ScriptedUser, SimulatedUser, UserServer, asking

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


AGENTS = {"solo": ("llm_agent_solo", "dummy_user"), "user": ("llm_agent", "user_simulator")}
"""The package's names for an agent and its user, by mode."""


def write_results(trials: ScoredTrials[Tau2Config]) -> None:
    """Write `trials.folder`/tau2_DOMAIN.json: the episodes, played again turn by turn, with the package's verdicts.

    A simulated user says again what it said, from the file of paid answers. Raises WorldFault and ChatApiError.
    """
    world = open_tau2(trials.settings, trials.code_blocks, trials.world)
    try:
        shown = tqdm(trials.episodes, desc="the package's results file", unit="episode", leave=False, disable=None)
        records = [_record(world, trials, episode) for episode in shown]
        about = world.pool.answer({"about": True})
    finally:
        world.close()
    results = {
        "info": _info(trials, about),
        "tasks": list({record["task"]["id"]: record["task"] for record in records}.values()),
        "simulations": [record["simulation"] for record in records],
    }
    trials.folder.mkdir()
    path = trials.folder / f"tau2_{trials.settings.domain}.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")


def _record(world: Tau2World, trials: ScoredTrials[Tau2Config], scored: ScoredEpisode) -> dict[str, Any]:
    """Return the package's task and simulation of an episode."""
    episode = world.open(scored.task_id, scored.seed)
    try:
        for text in scored.turns:
            if episode.step(text).done:
                break
    except ExecutionTimeout:
        pass  # as when it was played
    finally:
        episode.close()
    record: dict[str, Any] = world.pool.answer({"record": scored.task_id, **episode.played})
    simulation = record["simulation"]
    simulation |= {"id": f"{scored.task_id} {scored.trial}", "trial": scored.trial, "seed": scored.seed % 2**31}
    return record | {"simulation": simulation | {"agent_cost": trials.cost, "user_cost": trials.world_cost}}


def _info(trials: ScoredTrials[Tau2Config], about: dict[str, Any]) -> dict[str, Any]:
    agent, user = AGENTS[trials.settings.mode]
    simulated: dict[str, Any] = {}
    if trials.settings.mode == "user":
        by = trials.settings.user
        simulated["llm"] = by.request.model if by.by == "model" else "a script"
        simulated["llm_args"] = {"temperature": SAMPLING.temperature}
    return {
        "git_commit": trials.git_commit or "unknown",
        "num_trials": trials.trials,
        "max_steps": MAX_STEPS,
        "max_errors": MAX_ERRORS,
        "agent_info": {"implementation": agent, "llm": trials.model, "llm_args": {"temperature": trials.temperature}},
        "user_info": {"implementation": user, **simulated},
        "environment_info": {"domain_name": trials.settings.domain, "policy": about["policy"]},
    }
