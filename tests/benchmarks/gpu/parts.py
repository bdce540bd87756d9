"""Parts of the GPU check, each in a process of its own: started, given its time, ended, and looked for leftovers.

The processes are forked from one that has imported torch already, which saves each of them seconds of imports; none
of it has touched CUDA.
"""

import importlib
import json
import multiprocessing
import os
import signal
import time
import traceback
import uuid
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["torch", "transformers", "peft", "tasks.core.learner.learner", "tasks.core.engines.transformers.engine"]
MARK = "LOOPLINE_GPU_CHECK"
"""Environment variable that marks the processes which a part starts."""
_GRACE_S = 10.0
_SHOWN = 1000


class Part(NamedTuple):
    """A module of this package that measures something."""

    name: str
    seconds: float
    """Its time at most on a GPU; less where the whole check has less left. On a CPU it has what it needs."""
    in_little: bool = True
    """Whether a check in little runs it unless parts are named."""


PARTS = (
    Part("gradients", 60),
    Part("memory", 120),
    Part("mfu", 300),
    Part("architecture", 60),
    Part("kernels", 60),
    Part("engine", 60),
    Part("training", 60),
    Part("vllm", 420, in_little=False),  # vLLM's CPU build is a gigabyte to install
    Part("invariance", 240, in_little=False),
    Part("smollm2", 600),
)
LEAST_S = 15.0
"""With less time than this, a part is not begun."""


def device_of_this_machine() -> dict[str, Any]:
    """Return what torch says of the device, asked in another process: CUDA must not be touched before forks."""
    from gpu.device import describe, find_device  # imports torch

    return describe(find_device())


def ask_device() -> dict[str, Any]:
    """Return the device; a machine without torch has none."""
    try:
        with ProcessPoolExecutor(1, mp_context=CONTEXT) as pool:
            return pool.submit(device_of_this_machine).result()
    except ImportError as error:
        return {"device": f"unknown: {error}", "cuda": None}


def run_part(part: Part, seconds: float, log: Path) -> dict[str, Any]:
    """Run a part for at most `seconds`. Returns what to add to its figures: why it failed, and its orphans."""
    if seconds < LEAST_S:
        return {"skipped": "no time left"}
    mark = uuid.uuid4().hex
    process = CONTEXT.Process(target=_enter, args=(part.name, seconds - _GRACE_S, mark, str(log)))
    process.start()
    process.join(seconds)
    late, pid = process.is_alive(), process.pid or 0
    if late:
        _end(pid)
        process.join()
    orphans = _end_orphans(pid, mark)
    if late:  # what was cut off could not end its own
        return {"failed": f"took longer than {seconds:.0f} s"}
    if process.exitcode:
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return {"failed": said[-_SHOWN:] or "no output", "exit_code": process.exitcode, "orphans": orphans}
    return {"orphans": orphans}


def record(folder: Path, part: str, added: dict[str, Any], device: dict[str, Any]) -> None:
    """Add to a part's file, which a failed part may not have written."""
    file = folder / f"{part}.json"
    figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else device
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures | added, indent=2) + "\n", encoding="utf-8")


def _enter(name: str, seconds: float, mark: str, log: str) -> None:
    """Be the part: leader of a process group, its output in the log."""
    os.setsid()
    os.environ[MARK] = mark
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        importlib.import_module(f"gpu.{name}").main(seconds)
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None


def _end(group: int) -> None:
    """End a process group, the part's own processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, number)
        time.sleep(2 if number == signal.SIGTERM else 0)


def _end_orphans(group: int, mark: str) -> int:
    """End what a part that is over has left running, and return how many processes that were."""
    deadline, left = time.monotonic() + _GRACE_S, _started_by(group, mark)
    while left and time.monotonic() < deadline:  # a server's supervisor notices the end of its owner
        time.sleep(0.5)
        left = _started_by(group, mark)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _started_by(group: int, mark: str) -> list[int]:
    """Return the living processes in the part's group, or with its mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            marked = f"{MARK}={mark}".encode() in (entry / "environ").read_bytes()
            if fields[0] != "Z" and (marked or int(fields[2]) == group):
                found.append(int(entry.name))
    return found
