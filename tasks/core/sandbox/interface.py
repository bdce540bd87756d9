"""The sandbox's inputs and outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CallApi = Callable[[str, str, list[Any], dict[str, Any]], Any]
"""`call_api(app, name, args, kwargs)` returns a JSON value or raises `ApiError`; the agent chooses all arguments."""


_BYTES_PER_CHAR = 6  # of an escaped control character
_FRAME_BYTES = 256


class ApiError(Exception):
    """An API answered with an error. It is raised again in the agent's code, which may catch it as `ApiError`."""


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of one REPL process. A process that exceeds a time or call limit is killed."""

    cpu_seconds_per_run: float = 2.0
    """CPU seconds of one `run`, exact to about 10 ms. Where the system cannot measure them (macOS), wall time
    counts."""
    cpu_seconds_per_repl: int = 60
    """CPU seconds of the whole process, enforced by the kernel."""
    wall_seconds_per_run: float = 30.0
    """Wall seconds of one `run`, not counting `call_api`. Only a backstop: on a busy machine CPU time is fairer."""
    memory_bytes: int = 128 * 2**20
    """Address space that the agent's code may add to the interpreter's own; beyond it the code gets MemoryError."""
    api_calls_per_run: int = 10_000
    output_chars: int = 20_000
    """Characters of printed text kept per run; the rest is dropped as it is printed."""
    error_chars: int = 500
    """Characters of an error's last line that are kept."""
    request_bytes: int = 2**20
    """Largest message from the process, as JSON. An API call with larger arguments raises in the agent's code."""

    def __post_init__(self) -> None:
        """Check the limits. Raises ValueError when a result within the output limits could exceed `request_bytes`."""
        largest = _BYTES_PER_CHAR * (self.output_chars + 2 * self.error_chars) + _FRAME_BYTES
        if self.request_bytes < largest:
            raise ValueError(f"request_bytes must be at least {largest} for these output_chars and error_chars")


@dataclass(frozen=True)
class Execution:
    """Outcome of one `run`."""

    output: str
    """Printed text; after an error also `line N: <source>` and the error's last line, e.g. `NameError: ...`."""
    failed: bool
    error: str = ""
    """The error's last line, or empty."""
