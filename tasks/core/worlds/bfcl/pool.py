"""BFCL's processes (see `.inside`): players for episodes, warm judges for all.

pool = BfclPool(python)
player = pool.player(task_id)
player.play("[ls()]").results
pool.judge(task_id, [[["ls()"]]])
"""

from functools import partial
from pathlib import Path
from typing import Any

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.package_pool import Confinement, PackagePool
from tasks.core.confinement.warm_processes import WarmProcess, WarmProcesses
from tasks.core.worlds.bfcl.player import PlainPlayer, Player, PoolLimits

Turns = list[list[list[str]]]
"""Decoded calls: steps for each of the user's turns, calls for each step."""

_MODULE = "tasks.core.worlds.bfcl.inside.zygote"


class BfclPool(PackagePool):
    """BFCL's processes. `task` gives the user's messages turn by turn, the functions, and what a player needs."""

    def __init__(self, python: Path, limits: PoolLimits | None = None, confinement: Confinement = "auto") -> None:
        self.limits = limits = limits or PoolLimits()
        super().__init__("BFCL", _MODULE, python, limits, confinement)
        start = partial(PlainPlayer, message_bytes=limits.message_bytes)
        uses, cpu = limits.episodes_per_player, limits.player_cpu_seconds / 10
        self._plain = WarmProcesses(start, limits.idle_players, uses, cpu)

    def tasks(self) -> list[dict[str, Any]]:
        """Return id, classes, instruction and number of ground-truth calls of every task. Raises WorldFault."""
        listed: list[dict[str, Any]] = self.answer({"list": True})["tasks"]
        return listed

    def solution(self, task_id: str) -> list[str]:
        """Return the assistant's turns that solve a task. Raises WorldFault."""
        turns: list[str] = self.answer({"solve": task_id})["turns"]
        return turns

    def judge(self, task_id: str, turns: Turns) -> str:
        """Return the fault that the package's checker finds in decoded turns; empty if none. Raises WorldFault."""
        return str(self.answer({"judge": task_id, "turns": turns})["error"])

    def player(self, task_id: str) -> Player:
        """Return a fresh player of a task. Raises WorldFault."""
        return Player(self, self.task(task_id)["player"], self.limits)

    def plain_player(self) -> PlainPlayer:
        """Return a plain player; see `player.Lender`."""
        return self._plain.take(self.zygote())

    def give_back(self, player: PlainPlayer) -> None:
        """Take a plain player back; see `player.Lender`."""
        self._plain.give_back(player)

    def own_player(self) -> ConfinedProcess:
        """Return a new player for any text; see `player.Lender`."""
        return ConfinedProcess(self.zygote().forks, "player", self.limits.message_bytes, plain=False)

    def examiner(self) -> WarmProcess:
        """Start the package's own loop and evaluation, for `ask`; the caller ends it. Raises WorldFault."""
        return WarmProcess(self.zygote(), "examiner")

    def close(self) -> None:
        """End all processes. Idempotent; episodes still in use raise WorldFault."""
        super().close()
        self._plain.close()
