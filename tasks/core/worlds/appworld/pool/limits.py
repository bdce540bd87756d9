"""Limits of the episode pool and its processes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolLimits:
    """Seconds are wall-clock unless CPU is said. Over a limit the episode's processes are killed."""

    wall_seconds_per_run: float = 100.0
    """One block of the agent's code, its API calls included (the official server's limit)."""
    cpu_seconds_per_run: float = 10.0
    """CPU time of one block without its API calls; ends endless loops much sooner, and is just on a busy machine."""
    shell_cpu_seconds: int = 300
    """CPU time of an episode's shell, by the kernel."""
    world_cpu_seconds: int = 900
    """CPU time of a world's process, by the kernel. Episodes open only in one that has half of it left."""
    shell_memory_bytes: int = 256 * 2**20
    """Address space that the agent's code may add; more raises MemoryError in it."""
    world_memory_bytes: int = 1024 * 2**20
    api_calls_per_run: int = 10_000
    """API calls of one block, counted where the agent can't reach (the package's own 1,000 can be evaded)."""
    output_chars: int = 200_000
    """Printed characters kept per block; the rest is counted while it is printed."""
    message_bytes: int = 4 * 2**20
    """Largest message of a shell: an API call's arguments, or the output of a block."""
    hung_seconds: float = 20.0
    """How much longer than its limit a process may take before it is taken for hung."""
    start_seconds: float = 120.0
    """Start of the zygote, and of an episode."""
    evaluation_seconds: float = 120.0
    max_concurrent_episodes: int = 256
    """Episodes that are open at once; `open` waits for a free place."""
    waiting_seconds: float = 600.0
    """How long `open` waits before it gives up."""
    idle_worlds: int = 16
    """Worlds that are kept for the next episodes, some 35 MB each."""
    idle_evaluators: int = 4
    episodes_per_process: int = 256
    """After so many a world or an evaluator ends, so that nothing can add up."""
    known_tasks: int = 64
    """Tasks whose data stay in memory."""

    def __post_init__(self) -> None:
        """Raises ValueError when a result within `output_chars` could be over `message_bytes`."""
        if self.message_bytes < 6 * self.output_chars + 2**20:  # a control character escaped takes 6 bytes
            raise ValueError(f"message_bytes must be at least {6 * self.output_chars + 2**20} for these output_chars")
