"""The processes of an environment (see `.inside`): its zygote, and a player for each episode.

pool = VerifiersPool(config, python)
player = pool.player(task, seed)
player.seen
player.answer("...", [])
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.fork_server import ProcessDied
from tasks.core.confinement.live_zygote import LiveZygote
from tasks.core.confinement.package_pool import Confinement, package_variables
from tasks.core.confinement.zygote_process import ZygoteProcess
from tasks.core.interfaces.world import WorldFault
from tasks.core.records.files import ArtifactError
from tasks.core.tool_calls.reading import Call
from tasks.core.worlds.verifiers.settings import VerifiersConfig
from tasks.core.worlds.verifiers.tasks import Row, VerifiersTask, needed

_MODULE = "tasks.core.worlds.verifiers.inside.zygote"
_START_S = 600.0
"""Longest wait for an environment with its tasks; some build a dataset first."""


@dataclass(frozen=True)
class Limits:
    """Limits of a player."""

    player_cpu_seconds: int
    player_memory_bytes: int
    wall_seconds_per_turn: float = 120.0
    message_bytes: int = 8 * 2**20


@dataclass(frozen=True)
class Seen:
    """The part of an episode that the policy is shown after its turn."""

    messages: list[dict[str, Any]]
    """Those since its last turn, each with role, content, name and failed."""
    tools: list[dict[str, Any]]
    """Schemas, as the OpenAI API has them."""


@dataclass(frozen=True)
class Outcome:
    """The end of an episode, and what its rubric says."""

    reward: float
    rewards: dict[str, float]
    """Weighted, by name."""
    stop: str


class VerifiersPool:
    """The zygote of an environment. Thread-safe; nothing runs before the first request. A broken one is replaced."""

    def __init__(self, config: VerifiersConfig, python: Path, confinement: Confinement = "auto") -> None:
        self._config, self._python, self._confinement = config, python, confinement
        self.limits = Limits(math.ceil(config.cpu_s), config.memory_mb * 2**20)
        self._zygotes = LiveZygote[ZygoteProcess]()

    def listed(self) -> list[list[Row]]:
        """Return the tasks of each stream. Raises ArtifactError for an environment that cannot be played here.

        The zygote stays for players: to start one takes five seconds of a core.
        """
        zygote, greeting = self._started(listing=True)
        if self._zygotes.get(lambda: zygote) is not zygote:
            zygote.close()
        return [
            [Row(row, content, instruction, tuple(solution)) for row, content, instruction, solution in stream]
            for stream in greeting["listed"]
        ]

    def player(self, task: VerifiersTask, seed: int) -> "Player":
        """Return a player of a task that has shown its opening. Raises WorldFault, ArtifactError."""
        zygote = self._zygotes.get(lambda: self._started(listing=False)[0])
        return Player(ConfinedProcess(zygote.forks, "player", self.limits.message_bytes), task, seed, self.limits)

    def close(self) -> None:
        """End all processes. Idempotent; episodes still in use raise WorldFault."""
        self._zygotes.close()

    def settings(self, listing: bool) -> dict[str, Any]:
        """Return what its zygote is told when it starts; `listing`: its greeting then has all tasks."""
        config = self._config
        counts = zip(config.streams, needed(config), strict=True)
        return {
            **dataclasses.asdict(self.limits),
            "environment": config.environment,
            "max_turns": config.max_turns,
            "folder": str(Path(config.folder).resolve()) if config.folder else "",
            "streams": [{"settings": settings, "count": count} for settings, count in counts],
            "confinement": self._confinement,
            "solution": config.solution,
            "list": listing,
        }

    def _started(self, listing: bool) -> tuple[ZygoteProcess, dict[str, Any]]:
        config, settings = self._config, self.settings(listing)
        command = [str(self._python), "-P", "-s"]
        variables = package_variables("HOME", "HF_HOME", "HF_DATASETS_CACHE") | {"HF_HUB_OFFLINE": "1", "TZ": "UTC"}
        zygote = ZygoteProcess(config.environment, command, _MODULE, settings, variables, keep_errors=True)
        try:
            greeting = zygote.forks.started(_START_S)
        except WorldFault as fault:
            zygote.close()
            raise WorldFault(f"{fault}; its standard error: {zygote.said()}") from fault
        if "refused" in greeting:
            zygote.close()
            raise ArtifactError(f"world.verifiers: {config.environment}: {greeting['refused']}")
        return zygote, greeting


class Player:
    """The process of one episode. Not thread-safe, except `close`."""

    def __init__(self, process: ConfinedProcess, task: VerifiersTask, seed: int, limits: Limits) -> None:
        """Begin the episode. Raises WorldFault."""
        self._process, self._limits, self._name = process, limits, task.task_id
        opening = {"stream": task.stream, "row": task.row, "content": task.content, "seed": seed}
        self.seen: Seen | Outcome = self._exchanged(opening)
        """The part that the policy is shown now, or the end of the episode."""

    def answer(self, text: str, calls: Sequence[Call], error: str | None = None) -> Seen | Outcome:
        """Play a turn: a text, its calls, and what is wrong with calls that cannot be read.

        Raises WorldFault, ExecutionTimeout and ProcessDied after closing itself.
        """
        self.seen = self._exchanged({"text": text, "calls": [call.message for call in calls], "error": error})
        return self.seen

    def end(self) -> Outcome:
        """Let the policy say no more, and return the verdict. Raises what `answer` raises."""
        found = self._exchanged({"end": True})
        if isinstance(found, Seen):
            raise WorldFault(f"{self._name}: the environment goes on after the episode's end")
        return found

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        self._process.close()

    def _exchanged(self, message: dict[str, Any]) -> Seen | Outcome:
        try:
            self._process.begin(self._limits.wall_seconds_per_turn, self._limits.player_cpu_seconds)
            self._process.send(message)
            return self._read(self._process.receive())
        except BaseException:
            self.close()
            raise

    def _read(self, message: dict[str, Any]) -> Seen | Outcome:
        match message:
            case {"seen": {"messages": list(messages), "tools": list(tools)}}:
                return Seen(messages, tools)
            case {"over": {"reward": int() | float() as reward, "rewards": dict(rewards), "stop": str(stop)}}:
                return Outcome(float(reward), rewards, stop)
            case {"fault": str(text)}:
                raise WorldFault(f"{self._name}: {text}")
        raise ProcessDied(f"{self._name}: its process sent a message of the wrong shape")
