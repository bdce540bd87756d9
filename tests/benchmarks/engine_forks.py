"""Forks of a world's engine before and after its memory is gathered into large pages (BFCL's, with all of its tasks).

    python tests/benchmarks/engine_forks.py

Processor milliseconds of a fork and of its child's end, medians over rounds; `cheaper` is the ratio of the sums.
"""

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from tasks.core.confinement.inside.forking import collapse
from tasks.core.worlds.bfcl.inside.engine import load_tasks
from tasks.core.worlds.bfcl.inside.package import import_package

FORKS, ROUNDS = 100, 5


def of_a_fork() -> tuple[float, float]:
    """Processor milliseconds of the parent and of the child, which ends at once."""
    before = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(FORKS):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    after = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    own, child = (
        (new.ru_utime - old.ru_utime + new.ru_stime - old.ru_stime) / FORKS * 1e3
        for new, old in zip(after, before, strict=True)
    )
    return own, child


def milliseconds() -> dict[str, float]:
    own, child = zip(*(of_a_fork() for _ in range(ROUNDS)), strict=True)
    return {"fork_ms": round(statistics.median(own), 2), "child_ms": round(statistics.median(child), 2)}


def measured_inside() -> None:
    """In BFCL's interpreter: the engine's memory as it is when it begins to fork."""
    import_package()
    kept = load_tasks()
    gc.collect()
    gc.freeze()
    found = {"small_pages": milliseconds()}
    collapse()
    found["large_pages"] = milliseconds()
    print(json.dumps({"tasks": len(kept), **found}))


def main() -> None:
    """Measure and write."""
    from result_file import write_result

    from tasks.core.worlds.bfcl.interpreter import python_executable

    assert Path("pyproject.toml").exists(), "run it in the repository's root"
    command = [python_executable(), __file__, "--inside"]
    printed = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, stdout=subprocess.PIPE, check=True
    )
    found = json.loads(printed.stdout)
    small, large = (sum(found[pages].values()) for pages in ("small_pages", "large_pages"))
    write_result("engine_forks", {**found, "cheaper": round(small / large, 2)}, packages=())


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        measured_inside()
    else:
        main()
