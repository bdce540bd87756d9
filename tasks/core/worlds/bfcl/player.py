"""An episode's player, and the process that plays plain turns of one episode after another (see `.inside.player`)."""

from dataclasses import dataclass
from typing import Any, Protocol

from tasks.core.confinement.confined_process import ConfinedProcess
from tasks.core.confinement.data_zygote import DataZygote
from tasks.core.confinement.fork_server import ProcessDied
from tasks.core.confinement.package_pool import PackageLimits
from tasks.core.interfaces.world import WorldFault


class PlainPlayer(ConfinedProcess):
    """A player of plain turns that `confinement.warm_processes` can keep."""

    def __init__(self, zygote: DataZygote, message_bytes: int) -> None:
        """Fork the process. Raises WorldFault."""
        super().__init__(zygote.forks, "player", message_bytes, plain=True)
        self.zygote = zygote
        self.uses = 0

    def end(self) -> None:
        """End the process. Idempotent, never raises."""
        self.close()


@dataclass(frozen=True, kw_only=True)
class PoolLimits(PackageLimits):
    """Limits of the pool. A plain player serves no more episodes after using a tenth of its CPU seconds."""

    cpu_seconds_per_turn: float = 2.0
    episodes_per_player: int = 256
    idle_players: int = 16
    """Plain players waiting for an episode."""
    player_memory_bytes: int = 128 * 2**20
    result_chars: int = 200_000
    """Characters kept of one call's result; results in the package's own tasks have up to 40,000."""
    message_bytes: int = 8 * 2**20
    judge_memory_bytes: int = 512 * 2**20
    judgings_per_process: int = 256
    known_tasks: int = 64
    start_seconds: float = 120.0


@dataclass(frozen=True)
class Played:
    """Outcome of one turn of text."""

    calls: list[str]
    """As decoded by the package; empty if it could not decode the text."""
    results: list[str]


class Lender(Protocol):
    """A source of processes. All methods except `give_back` raise WorldFault."""

    def plain_player(self) -> PlainPlayer:
        """Return a player that others may have used; the caller gives it back or ends it."""

    def give_back(self, player: PlainPlayer) -> None:
        """Take back a player that has answered every request."""

    def own_player(self) -> ConfinedProcess:
        """Return a new player that plays any text; the caller closes it."""


class Player:
    """The player of one episode. Not thread-safe, except `close`.

    Everything it sends comes from the agent: it is shown to the agent, and judged as calls. An episode begins in a
    shared process, because plain calls change only their own state. At the first turn that is more than that, the
    episode moves to its own process, where its earlier turns are replayed.
    """

    def __init__(self, lender: Lender, task: dict[str, Any], limits: PoolLimits) -> None:
        """Take a process.

        `task`: its id, classes, initial state, and whether its context is long. Raises WorldFault.
        """
        self._lender, self._task, self._limits = lender, task, limits
        self._plain: PlainPlayer | None = lender.plain_player()
        self._own: ConfinedProcess | None = None
        self._opened: ConfinedProcess | None = None
        self._texts: list[str] = []
        self._busy = self._closed = False

    def play(self, text: str) -> Played:
        """Decode and execute one turn. Raises ExecutionTimeout, ProcessDied or WorldFault after closing itself."""
        self._busy = True
        try:
            played = self._play(text.encode("utf-8", "replace").decode("utf-8"))
        except BaseException:
            self.close()
            raise
        self._busy = False
        return played

    def close(self) -> None:
        """End the process or give it back. Idempotent, never raises."""
        self._closed = True
        self._leave_plain(self._busy)
        if self._own is not None:
            self._own.close()

    def _leave_plain(self, broken: bool) -> None:
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.end() if broken else self._lender.give_back(plain)

    def _play(self, text: str) -> Played:
        process = self._own or self._plain
        if process is None:
            raise WorldFault("the episode is closed")
        played = self._asked(process, text)
        if played is None:
            process_for_any = self._moved()
            for earlier in [*self._texts, text]:
                played = self._asked(process_for_any, earlier)
        assert played is not None  # a player of any text that answers "not plain" has raised ProcessDied
        self._texts.append(text)
        return played

    def _moved(self) -> ConfinedProcess:
        """Replace the plain process by one that belongs to this episode."""
        self._leave_plain(broken=False)
        player = self._own = self._lender.own_player()
        if self._closed:
            player.close()
        return player

    def _asked(self, process: ConfinedProcess, text: str) -> Played | None:
        """Return the turn as played by the process; None if the process does not play such a turn."""
        process.begin(self._limits.wall_seconds_per_turn, self._limits.cpu_seconds_per_turn)
        if self._opened is not process:
            process.send({"open": self._task})
            self._opened = process
        asked = len(self._texts)
        process.send({"turn": asked, "text": text})
        match process.receive():
            case {"played": int(turn), "calls": list(calls), "results": list(results)} if turn == asked:
                if len(calls) == len(results) and all(isinstance(string, str) for string in calls + results):
                    return Played(calls, results)
            case {"not plain": int(turn)} if turn == asked and process is not self._own:
                return None
            case {"fault": str(text)}:
                raise ProcessDied(f"the code broke its player: {text[:200]}")
        raise ProcessDied("the player sent a result of the wrong shape")
