"""Cost of a turn in the sandbox, beside the alternative: a fresh interpreter for every episode.

python tests/benchmarks/sandbox.py
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
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


def private_megabytes(repls: list[Repl]) -> float:
    """Mean memory that a live REPL shares with no other process (Linux)."""
    totals = []
    for repl in repls:
        lines = Path(f"/proc/{repl.pid}/smaps_rollup").read_text().splitlines()
        totals.append(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))
    return round(statistics.mean(totals) / 1024, 2)


def measure() -> dict[str, float]:
    sandbox = Sandbox()
    repl = sandbox.start()
    repl.run("pass", lambda *_: None)
    calls = 2000
    live: list[Repl] = []

    def start_and_run() -> None:
        live.append(sandbox.start())
        live[-1].run("x = 1", lambda *_: None)

    figures = {
        "run_ms": milliseconds(lambda: repl.run("x = 1", lambda *_: None), 1000),
        "api_call_ms": milliseconds(
            lambda: repl.run(f"for i in range({calls}): apis.a.b(i, k='v')", lambda *call: list(call)), 5
        )
        / calls,
        "start_and_first_run_ms": milliseconds(start_and_run, LIVE),
        "private_mb_per_live_repl": private_megabytes(live),
        "close_ms": milliseconds(lambda: live.pop().close(), LIVE),
        "fresh_interpreter_ms": milliseconds(lambda: subprocess.run([sys.executable, "-S", "-c", "pass"]), 20),
    }
    sandbox.close()
    figures["fresh_interpreter_over_start"] = round(
        figures["fresh_interpreter_ms"] / figures["start_and_first_run_ms"], 2
    )
    return figures


if __name__ == "__main__":
    write_result("sandbox", {"live_repls": LIVE, **measure()}, packages=())
