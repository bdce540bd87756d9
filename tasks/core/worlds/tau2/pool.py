"""τ²-bench's processes (see `.inside`): a player for each episode, warm judges for all.

pool = Tau2Pool(python)
player = pool.player(task_id)
player.play([Call("1", "check_sim_status", {})])
pool.judge(task_id, messages, "agent_stop")
"""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tasks.core.confinement.process_pool import Confinement, Keep, ProcessPool, Zygote, kept_variables
from tasks.core.worlds.tau2.kind import Domain, Mode
from tasks.core.worlds.tau2.player import Player, PoolLimits

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

    def __init__(
        self,
        python: Path,
        limits: PoolLimits | None = None,
        confinement: Confinement = "auto",
        *,
        domain: Domain = "telecom",
        mode: Mode = "solo",
    ) -> None:
        self.limits = limits = limits or PoolLimits()
        self.domain, self._python = domain, python
        self._settings = {**dataclasses.asdict(limits), "confinement": confinement}
        self._settings |= {"domain": domain, "solo": mode == "solo"}
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
