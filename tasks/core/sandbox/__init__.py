"""The process sandbox in which agents' Python code runs.

`Sandbox(limits).start(seed) -> Repl`; `Repl.run(code, call_api) -> Execution`. The caller keeps the world's state:
sandboxed code reaches it only through `call_api`, one JSON value at a time.
"""

from tasks.core.confinement.fork_server import ProcessDied
from tasks.core.sandbox.interface import ApiError, CallApi, Execution, SandboxLimits
from tasks.core.sandbox.sandbox import Repl, Sandbox

__all__ = ["ApiError", "CallApi", "Execution", "ProcessDied", "Repl", "Sandbox", "SandboxLimits"]
