"""BFCL's processes (see `.inside`): players for episodes, warm judges for all.

pool = BfclPool(python)
player = pool.player(task_id)
player.play("[ls()]").results
pool.judge(task_id, [[["ls()"]]])
"""

import dataclasses
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.data_zygote import DataZygote
from tasks.core.confinement.link import LinkBroken
from tasks.core.confinement.live_zygote import LiveZygote
from tasks.core.confinement.warm_processes import WarmProcess, WarmProcesses
from tasks.core.interfaces.world import WorldFault
from tasks.core.worlds.bfcl.player import PlainPlayer, Player, PoolLimits

Confinement = Literal["auto", "seccomp", "audit"]
Turns = list[list[list[str]]]
"""Decoded calls: steps for each of the user's turns, calls for each step."""

_MODULE = "tasks.core.worlds.bfcl.inside.zygote"


class BfclPool:
    """A pool of BFCL's processes. Thread-safe; nothing runs before the first request. A broken zygote is replaced."""

    def __init__(self, python: Path, limits: PoolLimits | None = None, confinement: Confinement = "auto") -> None:
        self.limits = limits = limits or PoolLimits()
        self._python, self._confinement = python, confinement
        self._zygotes = LiveZygote[DataZygote]()
        uses, cpu = limits.judgings_per_process, limits.judge_cpu_seconds / 2
        self._judges = WarmProcesses(partial(WarmProcess, kind="judge"), limits.idle_judges, uses, cpu)
        uses, cpu = limits.episodes_per_player, limits.player_cpu_seconds / 10
        self._plain = WarmProcesses(
            partial(PlainPlayer, message_bytes=limits.message_bytes), limits.idle_players, uses, cpu
        )
        self.task = lru_cache(limits.known_tasks)(self._described)
        """Maps a task's id to the user's messages turn by turn, its functions, and what a player needs."""

    def tasks(self) -> list[dict[str, Any]]:
        """Return id, classes, instruction and number of ground-truth calls of every task. Raises WorldFault."""
        listed: list[dict[str, Any]] = self._ask({"list": True})["tasks"]
        return listed

    def solution(self, task_id: str) -> list[str]:
        """Return the assistant's turns that solve a task. Raises WorldFault."""
        turns: list[str] = self._ask({"solve": task_id})["turns"]
        return turns

    def judge(self, task_id: str, turns: Turns) -> str:
        """Return the fault that the package's checker finds in decoded turns; empty if none. Raises WorldFault."""
        return str(self._ask({"judge": task_id, "turns": turns})["error"])

    def player(self, task_id: str) -> Player:
        """Return a fresh player of a task. Raises WorldFault."""
        return Player(self, self.task(task_id)["player"], self.limits)

    def plain_player(self) -> PlainPlayer:
        """Return a plain player; see `player.Lender`."""
        return self._plain.take(self._zygote())

    def give_back(self, player: PlainPlayer) -> None:
        """Take a plain player back; see `player.Lender`."""
        self._plain.give_back(player)

    def own_player(self) -> ConfinedProcess:
        """Return a new player for any text; see `player.Lender`."""
        return ConfinedProcess(self._zygote().forks, "player", self.limits.message_bytes, plain=False)

    def examiner(self) -> WarmProcess:
        """Start the package's own loop and evaluation, for `ask`; the caller ends it. Raises WorldFault."""
        return WarmProcess(self._zygote(), "examiner")

    def ask(self, process: WarmProcess, question: dict[str, Any]) -> dict[str, Any]:
        """Return a judge's or examiner's answer. Raises WorldFault; the caller must then end the process."""
        try:
            process.link.send(question)
            answer = process.link.receive(self.limits.judging_seconds)
        except LinkBroken as error:
            raise WorldFault(f"BFCL's {process.kind} {error}") from error
        if "fault" in answer:
            raise WorldFault(f"BFCL's {process.kind} failed: {answer['fault']}")
        process.cpu_seconds = answer["cpu_seconds"]
        return answer

    def close(self) -> None:
        """End all processes. Idempotent; episodes still in use raise WorldFault."""
        self._zygotes.close()
        self._judges.close()
        self._plain.close()

    def _described(self, task_id: str) -> dict[str, Any]:
        return self._ask({"describe": task_id})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        judge = self._judges.take(self._zygote())
        try:
            answer = self.ask(judge, question)
        except BaseException:
            judge.end()
            raise
        self._judges.give_back(judge)
        return answer

    def _zygote(self) -> DataZygote:
        return self._zygotes.get(self._start)

    def _start(self) -> DataZygote:
        settings = {**dataclasses.asdict(self.limits), "confinement": self._confinement}
        kept = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
        variables = {**kept, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        zygote = DataZygote("BFCL", [str(self._python), "-P", "-s"], _MODULE, settings, variables)
        zygote.ready(self.limits.start_seconds)
        return zygote
