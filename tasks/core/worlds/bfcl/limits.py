"""Limits of BFCL's processes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolLimits:
    """Seconds are wall-clock unless CPU is said. Over a limit the episode's player is killed."""

    wall_seconds_per_turn: float = 60.0
    cpu_seconds_per_turn: float = 2.0
    player_cpu_seconds: int = 60
    """CPU time of a player, by the kernel; a plain one serves no more episodes when a tenth of it is used."""
    episodes_per_player: int = 256
    idle_players: int = 16
    """Plain players that wait for an episode."""
    player_memory_bytes: int = 128 * 2**20
    """Address space that the agent's calls may add; more raises MemoryError in them."""
    result_chars: int = 200_000
    """Characters kept of one call's result; those of the package's own tasks have up to 40,000."""
    message_bytes: int = 8 * 2**20
    """Largest message of a player: the results of a turn."""
    judge_cpu_seconds: int = 900
    """CPU time of a judge, by the kernel; it judges no more when half of it is used."""
    judge_memory_bytes: int = 512 * 2**20
    judging_seconds: float = 180.0
    judgings_per_process: int = 256
    idle_judges: int = 4
    known_tasks: int = 64
    """Tasks whose prompts and initial states stay in memory."""
    start_seconds: float = 120.0
