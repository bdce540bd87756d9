"""Cost of an episode's start in the sandbox, beside the alternative: a fresh interpreter for every episode.

python tests/benchmarks/sandbox.py
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from result_file import write_result

from tasks.core.sandbox import Repl, Sandbox

LIVE = 144


def milliseconds(action: Callable[[], Any], repeats: int) -> float:
    """Median of `repeats` calls."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return round(statistics.median(times) * 1e3, 4)


def measure() -> dict[str, float]:
    sandbox = Sandbox()
    live: list[Repl] = []

    def start_and_run() -> None:
        live.append(sandbox.start())
        live[-1].run("x = 1", lambda *_: None)

    start_and_run()
    started = milliseconds(start_and_run, LIVE)
    sandbox.close()
    fresh = milliseconds(lambda: subprocess.run([sys.executable, "-S", "-c", "pass"]), 20)
    figures = {"start_and_first_run_ms": started, "fresh_interpreter_ms": fresh}
    return figures | {"fresh_interpreter_over_start": round(fresh / started, 2)}


if __name__ == "__main__":
    write_result("sandbox", {"live_repls": LIVE, **measure()}, packages=())
