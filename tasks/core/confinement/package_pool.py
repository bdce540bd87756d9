"""A benchmark's own package in confined processes: its zygote, and warm judges that answer questions on its tasks."""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from tasks.core.confinement.data_zygote import DataZygote
from tasks.core.confinement.link import LinkBroken
from tasks.core.confinement.live_zygote import LiveZygote
from tasks.core.confinement.warm_processes import WarmProcess, WarmProcesses
from tasks.core.interfaces.world import WorldFault

Confinement = Literal["auto", "seccomp", "audit"]


@dataclass(frozen=True, kw_only=True)
class PackageLimits:
    """Limits of a package's processes. Seconds are wall-clock unless named CPU. A player that exceeds one is killed."""

    wall_seconds_per_turn: float = 60.0
    cpu_seconds_per_turn: float
    player_cpu_seconds: int = 60
    """CPU seconds of a player, enforced by the kernel."""
    player_memory_bytes: int
    """Address space that an agent's calls may add."""
    message_bytes: int
    """Largest message of a player: the results of a turn."""
    judge_cpu_seconds: int = 900
    """CPU seconds of a judge, enforced by the kernel; it judges no more after using half."""
    judge_memory_bytes: int
    judging_seconds: float = 180.0
    judgings_per_process: int
    idle_judges: int = 4
    known_tasks: int
    """Tasks whose prompts and initial states stay in memory."""
    start_seconds: float


def package_variables(*kept: str) -> dict[str, str]:
    """Return the environment of a package's processes: the few of our variables that they need, and those in `kept`."""
    names = ("LANG", "LD_LIBRARY_PATH", "TMPDIR", *kept)
    ours = {name: os.environ[name] for name in names if name in os.environ}
    return {**ours, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


class PackagePool:
    """The processes of one package. Thread-safe; nothing runs before the first request. A broken one is replaced."""

    task: Callable[[str], dict[str, Any]]
    """Maps a task's id to what the package's `inside` describes it by. Raises WorldFault."""

    def __init__(self, name: str, module: str, python: Path, limits: PackageLimits, confinement: Confinement) -> None:
        """Take the package's name in messages and the module that its interpreter `python` runs as the zygote."""
        self._package, self._limits = name, limits
        self._command, self._module = [str(python), "-P", "-s"], module
        self._settings = {**dataclasses.asdict(limits), "confinement": confinement}
        self._zygotes = LiveZygote[DataZygote]()
        uses, cpu = limits.judgings_per_process, limits.judge_cpu_seconds / 2
        self._judges = WarmProcesses(partial(WarmProcess, kind="judge"), limits.idle_judges, uses, cpu)
        self.task = lru_cache(limits.known_tasks)(lambda task_id: self.answer({"describe": task_id}))

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return a judge's answer. Raises WorldFault."""
        judge = self._judges.take(self.zygote())
        try:
            answer = self.ask(judge, question)
        except BaseException:
            judge.end()
            raise
        self._judges.give_back(judge)
        return answer

    def ask(self, process: WarmProcess, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of this process. Raises WorldFault; the caller must then end the process."""
        try:
            process.link.send(question)
            answer = process.link.receive(self._limits.judging_seconds)
        except LinkBroken as error:
            raise WorldFault(f"{self._package}'s {process.kind} {error}") from error
        if "fault" in answer:
            raise WorldFault(f"{self._package}'s {process.kind} failed: {answer['fault']}")
        process.cpu_seconds = answer["cpu_seconds"]
        return answer

    def zygote(self) -> DataZygote:
        """Return the process from which players are forked. Raises WorldFault."""
        return self._zygotes.get(self._start)

    def close(self) -> None:
        """End all processes. Idempotent; episodes still in use raise WorldFault."""
        self._zygotes.close()
        self._judges.close()

    def _start(self) -> DataZygote:
        zygote = DataZygote(self._package, self._command, self._module, self._settings, package_variables())
        zygote.ready(self._limits.start_seconds)
        return zygote
