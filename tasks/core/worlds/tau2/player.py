"""An episode's player (see `.inside.player`) as the pipeline sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.fork_server import ForkServer, ProcessDied
from tasks.core.tool_calls import Call, Result

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
        try:
            return self._play(calls, side)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        self._process.close()

    def _play(self, calls: Sequence[Call], side: Side) -> list[Result]:
        self._process.begin(self._limits.wall_seconds_per_turn, self._limits.cpu_seconds_per_turn)
        if not self._messages:
            self._process.send({"open": self._initial_state})
        self._messages += 1
        self._process.send({"message": self._messages, "calls": [call.message | {"requestor": side} for call in calls]})
        match self._process.receive():
            case {"played": int(number), "results": list(results)} if number == self._messages:
                return [Result(str(result["content"]), bool(result["error"])) for result in results]
            case {"fault": str(text)}:
                raise ProcessDied(f"the calls broke their player: {text[:200]}")
        raise ProcessDied("the player sent a result of the wrong shape")
