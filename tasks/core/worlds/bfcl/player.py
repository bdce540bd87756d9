"""A player as its episode sees it (see `.inside.player`)."""

from dataclasses import dataclass
from typing import Any

from tasks.core.worlds.bfcl.limits import PoolLimits
from tasks.core.worlds.confinement.confined_process import ConfinedProcess
from tasks.core.worlds.confinement.verdict import ProcessDied


@dataclass(frozen=True)
class Played:
    """Outcome of one turn of text."""

    calls: list[str]
    """As the package decoded them; none when it could not."""
    results: list[str]


class Player:
    """Not thread-safe. Whatever it sends is an agent's word: shown to the agent, and judged as calls that it made."""

    def __init__(self, process: ConfinedProcess, task: dict[str, Any], limits: PoolLimits) -> None:
        """`task`: its id, classes, initial state, and whether its context is long."""
        self._process, self._limits = process, limits
        self._opening: dict[str, Any] | None = task
        self._turn = 0

    def play(self, text: str) -> Played:
        """Decode and execute one turn. Raises ExecutionTimeout, ProcessDied or WorldFault; it is then closed."""
        try:
            return self._play(text.encode("utf-8", "replace").decode("utf-8"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process. Idempotent, never raises."""
        self._process.close()

    def _play(self, text: str) -> Played:
        self._process.begin(self._limits.wall_seconds_per_turn, self._limits.cpu_seconds_per_turn)
        if self._opening is not None:
            self._process.send({"open": self._opening})
            self._opening = None
        self._turn += 1
        self._process.send({"turn": self._turn, "text": text})
        match self._process.receive():
            case {"played": int(turn), "calls": list(calls), "results": list(results)} if turn == self._turn:
                if len(calls) == len(results) and all(isinstance(one, str) for one in calls + results):
                    return Played(calls, results)
            case {"fault": str(text)}:
                raise ProcessDied(f"the code broke its player: {text[:200]}")
        raise ProcessDied("the player sent a result of the wrong shape")
