"""1,000 injected faults: is an episode lost, does a run stick, is a process, socket or folder left over?

python tests/benchmarks/appworld_faults.py [ROOT] [FAULTS]

After every three faults comes a bystander, an episode without one, which must answer and be evaluated as if it were
alone. A lost episode is one that ended in anything but a result or a recorded reason.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

from result_file import write_result
from tqdm import tqdm

from tasks.core.interfaces.world import ExecutionTimeout, WorldFault
from tasks.core.worlds.appworld.interpreter import python_executable
from tasks.core.worlds.appworld.pool import EpisodePool, LiveEpisode, PoolLimits

WORKERS = 4
LIMITS = PoolLimits(
    wall_seconds_per_run=20.0, cpu_seconds_per_run=0.5, hung_seconds=5.0, max_concurrent_episodes=WORKERS
)
BYSTANDER = "bystander"
LONGEST_SECONDS = 120.0
"""Over this an episode counts as stuck."""


def code(text: str) -> Callable[[LiveEpisode], None]:
    return lambda episode: _run(episode, text)


def _run(episode: LiveEpisode, text: str) -> None:
    assert len(episode.run(text).output) <= LIMITS.output_chars + 1000


def killed(name: str) -> Callable[[LiveEpisode], None]:
    def fault(episode: LiveEpisode) -> None:
        os.kill(episode.pids[name], signal.SIGKILL)
        episode.run("1")

    return fault


def hung(episode: LiveEpisode) -> None:
    episode._limits = replace(LIMITS, wall_seconds_per_run=1.0, hung_seconds=1.0)
    os.kill(episode.pids["world"], signal.SIGSTOP)
    episode.run("1")


FAULTS: dict[str, Callable[[LiveEpisode], None]] = {
    "endless loop": code("while True: pass"),
    "endless loop, all caught": code("while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    "sys.exit": code("raise SystemExit"),
    "abort": code("import os\nos.__dict__['abort']()"),
    "exit call": code("builtins.__import__('posix').__dict__['_exit'](3)"),
    "fork bomb": code(
        "import os\nfor _ in range(999):\n"
        "    try: os.__dict__['posix_spawn']('/bin/true', [], {})\n    except OSError: pass"
    ),
    "100 MB of output": code("for _ in range(100): print('x' * 2**20)"),
    "deep recursion": code("def f(): f()\nf()"),
    "deep recursion in C": code("x = []\nfor _ in range(10**5): x = [x]\nprint(repr(x))"),
    "thread": code("t = builtins.__import__('_thread')\nt.start_new_thread(print, ())"),
    "file": code("print(builtins.__import__('_io').FileIO('/etc/passwd').read())"),
    "socket": code("builtins.__import__('_socket').socket()"),
    "unicode": code("print('\\ud800')\nx = '\ud800'"),
    "syntax error": code("print("),
    "builtins": code("builtins.len = builtins.print = builtins.str = None"),
    "memory": code("x = bytearray(2**33)"),
    "garbage on the channel": code(
        "c = [o for o in builtins.__import__('gc').get_objects() if type(o).__name__ == 'Channel'][0]\n"
        "c.send({'done': 7})"
    ),
    "shell killed": killed("shell"),
    "world killed": killed("world"),
    "world hung": hung,
}


class Campaign:
    """Plays episodes with faults and keeps count."""

    def __init__(self, pool: EpisodePool, tasks: list[str]) -> None:
        self._pool, self._tasks = pool, tasks
        self._lock = threading.Lock()
        self.injected: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.lost: list[str] = []
        self.slow: list[str] = []
        self.sessions: set[int] = set()

    def play(self, number: int, name: str) -> None:
        begin = time.monotonic()
        try:
            end = self._end(name, self._tasks[number % len(self._tasks)])
        except Exception as error:
            with self._lock:
                self.lost.append(f"{name}: {type(error).__name__}: {error}"[:200])
            return
        with self._lock:
            self.ends[end] += 1
            if time.monotonic() - begin > LONGEST_SECONDS:
                self.slow.append(name)

    def _end(self, name: str, task: str) -> str:
        episode = self._pool.open(task)
        with self._lock:
            self.sessions.add(os.getsid(episode.pids["world"]))
            self.injected[name] += 1
        try:
            if name == BYSTANDER:
                assert episode.run("print(6 * 7)").output == "42\n"
                assert episode.evaluate().status is None
                return "bystander"
            FAULTS[name](episode)
            episode.evaluate()
            return "evaluated"
        except (ExecutionTimeout, WorldFault) as end:
            assert str(end)
            return type(end).__name__
        finally:
            episode.close()


def main(root: Path, faults: int) -> None:
    kinds = list(FAULTS)
    names = [kinds[number % len(kinds)] for number in range(faults)]
    names = [name for begin in range(0, faults, 3) for name in (*names[begin : begin + 3], BYSTANDER)]
    sockets, folders = open_sockets(), temporary_folders()
    pool = EpisodePool(python_executable(), root, LIMITS)
    campaign = Campaign(pool, (root / "data/datasets/train.txt").read_text().split()[:6])
    with ThreadPoolExecutor(WORKERS) as threads:
        list(tqdm(threads.map(campaign.play, count(), names), total=len(names), desc="faults", mininterval=5))
    unaccounted = members(campaign.sessions) - set(pool.lasting_pids)
    pool.close()
    bystanders = campaign.injected.pop(BYSTANDER)
    write_result(
        "appworld_faults",
        {
            "faults_injected": campaign.injected.total(),
            "faults_of_each_kind": dict(campaign.injected),
            "bystanders": bystanders,
            "ends": dict(sorted(campaign.ends.items())),
            "zygotes": len(campaign.sessions),
            "lost": len(campaign.lost),
            "lost_examples": campaign.lost[:5],
            "stuck": len(campaign.slow),
            "leftover_processes_while_open": len(unaccounted),
            "leftover_processes": len(members(campaign.sessions)),
            "leftover_sockets": open_sockets() - sockets,
            "leftover_temporary_folders": len(temporary_folders() - folders),
        },
        (),
    )


def members(sessions: set[int]) -> set[int]:
    """The processes of these sessions, zombies too: each zygote leads one, to which all that it forks belong."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) in sessions:
                found.add(int(stat.parent.name))
    return found


def open_sockets() -> int:
    """Sockets of this process."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(descriptor.readlink()).startswith("socket:")
    return found


def temporary_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("appworld-*"))


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".loopline/roots/benchmark")
    main(chosen, int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
