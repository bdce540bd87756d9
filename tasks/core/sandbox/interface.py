"""Values that go into the sandbox and come out of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CallApi = Callable[[str, str, list[Any], dict[str, Any]], Any]
"""`call_api(app, name, args, kwargs)` answers with a JSON value or raises `ApiError`; all four come from the agent."""


_BYTES_PER_CHAR = 6  # of a control character, escaped
_FRAME_BYTES = 256


class ApiError(Exception):
    """An API's answer is an error. Raised again inside the agent's code, which may catch it as `ApiError`."""


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of one REPL process. Over a time or call limit the process is killed."""

    cpu_seconds_per_run: float = 2.0
    """CPU time of one `run`; exact to about 10 ms. Where the system can't tell it (macOS), wall time counts."""
    cpu_seconds_per_repl: int = 60
    """CPU time of the whole process, by the kernel."""
    wall_seconds_per_run: float = 30.0
    """Wall time of one `run` without the time spent in `call_api`. A backstop: on a busy machine CPU time is just."""
    memory_bytes: int = 128 * 2**20
    """Address space that the agent's code may add to the interpreter's own; more raises MemoryError in it."""
    api_calls_per_run: int = 10_000
    output_chars: int = 20_000
    """Characters of printed text kept per run; the rest is dropped while it is printed."""
    error_chars: int = 500
    """Characters kept of an error's last line."""
    request_bytes: int = 2**20
    """Size of one message from the process, as JSON. An API call with larger arguments raises in the agent's code."""

    def __post_init__(self) -> None:
        """Raises ValueError when a result within the output limits could be over `request_bytes`."""
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
