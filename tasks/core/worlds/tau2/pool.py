"""τ²-bench's processes (see `.inside`): a player for each episode, warm judges for all.

pool = Tau2Pool(python)
player = pool.player(task_id)
player.play([Call("1", "check_sim_status", {})])
pool.judge(task_id, messages, "agent_stop")
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.fork_server import ForkServer, ProcessDied
from tasks.core.confinement.process_pool import Keep, ProcessPool, Zygote, kept_variables
from tasks.core.tool_calls import Call, Result
from tasks.core.worlds.tau2.kind import Domain, Mode

Side = Literal["assistant", "user"]
"""Who makes a call: the agent, or its user."""


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """Limits of the pool. Seconds are wall-clock unless named CPU. A player that exceeds one is killed."""

    wall_seconds_per_turn: float = 60.0
    cpu_seconds_per_turn: float = 5.0
    player_cpu_seconds: int = 60
    """CPU seconds of a player, enforced by the kernel."""
    player_memory_bytes: int = 256 * 2**20
    """Address space that an agent's calls may add."""
    message_bytes: int = 32 * 2**20
    """Largest message of a player: the results of a turn."""
    judge_cpu_seconds: int = 900
    """CPU seconds of a judge, enforced by the kernel; it judges no more after using half."""
    judge_memory_bytes: int = 1024 * 2**20
    judging_seconds: float = 180.0
    judgings_per_process: int = 2_000
    idle_judges: int = 4
    known_tasks: int = 256
    """Tasks whose prompts and initial states stay in memory."""
    start_seconds: float = 180.0


class Player:
    """The process of one episode. Not thread-safe, except `close`. What it says is shown to the agent alone."""

    def __init__(self, forks: ForkServer, initial_state: dict[str, Any], limits: PoolLimits) -> None:
        """Fork a process whose environment takes this state. Raises WorldFault."""
        self._process = ConfinedProcess(forks, "player", limits.message_bytes)
        self._limits, self._initial_state = limits, initial_state
        self._messages = 0

    def play(self, calls: Sequence[Call], side: Side = "assistant") -> list[Result]:
        """Execute the calls of a message. Raises ExecutionTimeout, ProcessDied or WorldFault after closing itself."""
        written = [call.message | {"requestor": side} for call in calls]
        with self._process.running(self._limits.wall_seconds_per_turn, self._limits.cpu_seconds_per_turn):
            if not self._messages:
                self._process.send({"open": self._initial_state})
            self._messages += 1
            self._process.send({"message": self._messages, "calls": written})
            match self._process.receive():
                case {"played": int(number), "results": list(results)} if number == self._messages:
                    return [Result(str(result["content"]), bool(result["error"])) for result in results]
                case {"fault": str(text)}:
                    raise ProcessDied(f"the calls broke their player: {text[:200]}")
            raise ProcessDied("the player sent a result of the wrong shape")

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        self._process.end()


Ending = Literal["agent_stop", "user_stop", "agent_error", "user_error", "max_steps", "too_many_errors"]
"""The package's reasons for the end of an episode. All but the first two are worth nothing."""

_MODULE = "tasks.core.worlds.tau2.inside.zygote"


@dataclass(frozen=True)
class Verdict:
    """The package's evaluation of an episode."""

    reward: float
    checks: tuple[tuple[str, bool], ...]
    """The requirements of the task's reward, and whether each is met."""
    note: str
    """Why nothing was checked; empty where the requirements were."""


class Solution(NamedTuple):
    """The package's solution of a task."""

    calls: list[dict[str, Any]]
    """{"name", "arguments", "requestor"} of each."""
    tells: list[str]
    """Texts that the user must be told."""


class Tau2Pool:
    """τ²-bench's processes. Thread-safe; nothing runs before the first request."""

    def __init__(self, python: Path, *, domain: Domain = "telecom", mode: Mode = "solo") -> None:
        self.limits = limits = PoolLimits()
        self.domain, self._python = domain, python
        self._settings = dataclasses.asdict(limits) | {"confinement": "auto", "domain": domain, "solo": mode == "solo"}
        judges = Keep(limits.idle_judges, limits.judgings_per_process, limits.judge_cpu_seconds / 2)
        self._pool = ProcessPool(self._start, judge=judges)
        self.task = lru_cache(limits.known_tasks)(lambda task_id: self.answer({"describe": task_id}))
        """Gives a task's official prompt, ticket, the tools' schemas, the initial state, and of the simulated user
        prompt, tools and scenario. Raises WorldFault."""

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return a judge's answer. Raises WorldFault."""
        answer: dict[str, Any] = self._pool.ask("judge", question, self.limits.judging_seconds, "τ²-bench's judge")
        return answer

    def tasks(self) -> tuple[list[dict[str, str]], dict[str, list[str]]]:
        """Return id, ticket and reason to call of every task, and the official splits' ids. Raises WorldFault."""
        answer = self.answer({"list": True})
        return answer["tasks"], answer["splits"]

    def solution(self, task_id: str) -> Solution:
        """Return how a task is solved. Raises WorldFault."""
        answer = self.answer({"solve": task_id})
        return Solution(answer["calls"], answer["tells"])

    def judge(self, task_id: str, messages: list[dict[str, Any]], ending: Ending) -> Verdict:
        """Return the package's evaluation of an episode. Raises WorldFault."""
        answer = self.answer({"judge": task_id, "messages": messages, "ending": ending})
        checks = tuple((str(text), bool(met)) for text, met in answer["checks"])
        return Verdict(float(answer["reward"]), checks, str(answer["note"]))

    def player(self, task_id: str) -> Player:
        """Return a fresh player of a task. Raises WorldFault."""
        return Player(self._pool.zygote().forks, self.task(task_id)["initial_state"], self.limits)

    def close(self) -> None:
        """End all processes. Idempotent; episodes still in use raise WorldFault."""
        self._pool.close()

    def _start(self, frame: bytes) -> Zygote:
        command = [str(self._python), "-P", "-s"]
        zygote = Zygote("τ²-bench", command, _MODULE, self._settings, kept_variables())
        zygote.ready(self.limits.start_seconds, frame)
        return zygote
