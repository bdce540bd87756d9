"""Scripted 8-step episodes: the pool beside one official HTTP server per worker, interleaved in one run.

python tests/benchmarks/appworld_episodes.py [ROOT]

Both ways play the same oracle solutions, cut into 8 blocks, K = 6 episodes per task as a training iteration does, and
evaluate each episode; outputs and verdicts must be the same. Without ROOT a small root is authored under .loopline/.
"""

import ast
import os
import statistics
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from result_file import write_result
from tqdm import tqdm

from tasks.core.config.splits import Split
from tasks.core.worlds.appworld.interpreter import python_executable
from tasks.core.worlds.appworld.official_server import OfficialServer
from tasks.core.worlds.appworld.pool import EpisodePool, PoolLimits
from tasks.core.worlds.appworld.root import author_root

WORKERS = 2
STEPS = 8
PER_TASK = 6
TASKS_PER_ROUND = 2
ROUNDS = 4
RESETS = 60
ROW = 200
LIVE = 12
TICK = 1000.0 / os.sysconf("SC_CLK_TCK")
COUNTS: dict[Split, int] = {"train": 12, "dev": 3, "test_normal": 3, "test_challenge": 3}

Played = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Outputs, passed and failed requirements of one episode."""


def blocks(root: Path, task: str) -> list[str]:
    """The oracle's top-level statements in at most STEPS blocks, filled up with looks at the task."""
    source = (root / "data" / "tasks" / task / "ground_truth" / "compiled_solution.py").read_text()
    (solution,) = (one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name == "solution")
    body = [ast.unparse(statement) for statement in solution.body]
    size = max(1, -(-len(body) // STEPS))
    cut = ["\n".join(body[begin : begin + size]) for begin in range(0, len(body), size)]
    return ["print(apis.supervisor.show_active_task())"] * (STEPS - len(cut)) + cut


class ByServer:
    """One official server per worker."""

    def __init__(self, python: Path, root: Path) -> None:
        self._servers = [OfficialServer(python, root) for _ in range(WORKERS)]

    def play(self, worker: int, task: str, codes: list[str]) -> Played:
        server, name = self._servers[worker], f"benchmark-{uuid.uuid4().hex}"
        server.call("initialize", task_id=task, experiment_name=name)
        outputs = tuple(server.call("execute", task_id=task, code=code) for code in codes)
        verdict = server.call("evaluate", task_id=task, suppress_errors=True)
        server.call("close", task_id=task)
        passed, failed = ([one["requirement"] for one in verdict[key]] for key in ("passes", "failures"))
        return outputs, tuple(passed), tuple(failed)

    def cpu_ms(self) -> float:
        return sum(cpu_ms(server.pid) for server in self._servers)

    def close(self) -> None:
        for server in self._servers:
            server.close()


class ByPool:
    """Episodes forked from warm processes."""

    def __init__(self, python: Path, root: Path) -> None:
        self.pool = EpisodePool(python, root, PoolLimits())

    def play(self, worker: int, task: str, codes: list[str]) -> Played:
        episode = self.pool.open(task)
        try:
            outputs = tuple(episode.run(code).output for code in codes)
            verdict = episode.evaluate()
        finally:
            episode.close()
        return outputs, verdict.passed, verdict.failed

    def cpu_ms(self) -> float:
        return sum(cpu_ms(pid) for pid in self.pool.lasting_pids)

    def close(self) -> None:
        self.pool.close()


def cpu_ms(pid: int) -> float:
    """CPU time of a process, its threads and its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) * TICK


def private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def timed(way: Any, work: list[tuple[str, list[str]]]) -> tuple[float, float, list[Played]]:
    """Wall seconds, CPU milliseconds (client included) and what was played."""
    cpu, client, begin = way.cpu_ms(), time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as threads:
        lanes = [
            threads.submit(lambda lane: [way.play(lane, *one) for one in work[lane::WORKERS]], worker)
            for worker in range(WORKERS)
        ]
        played = [one for lane in lanes for one in lane.result()]
    wall = time.perf_counter() - begin
    return wall, way.cpu_ms() - cpu + 1e3 * (time.process_time() - client), played


def compare(python: Path, root: Path, tasks: list[str]) -> dict[str, Any]:
    ways: dict[str, Any] = {"http": ByServer(python, root), "pool": ByPool(python, root)}
    script = {task: blocks(root, task) for task in tasks}
    totals = {name: [0.0, 0.0] for name in ways}
    episodes, different = 0, 0
    try:
        for name in ways:
            timed(ways[name], [(tasks[-1], script[tasks[-1]])] * WORKERS)  # the first one of each is cold
        for number in tqdm(range(ROUNDS), desc="rounds", mininterval=5):
            chosen = [tasks[(number * TASKS_PER_ROUND + k) % (len(tasks) - 1)] for k in range(TASKS_PER_ROUND)]
            work = [(task, script[task]) for task in chosen for _ in range(PER_TASK)]
            results = {}
            for name in sorted(ways, reverse=bool(number % 2)):
                wall, cpu, results[name] = timed(ways[name], work)
                totals[name][0] += wall
                totals[name][1] += cpu
            episodes += len(work)
            different += sum(a != b for a, b in zip(results["http"], results["pool"], strict=True))
        return figures(totals, episodes, different) | resets(ways["pool"], tasks[0]) | memory(ways["pool"], tasks)
    finally:
        for way in ways.values():
            way.close()


def figures(totals: dict[str, list[float]], episodes: int, different: int) -> dict[str, Any]:
    rates = {name: episodes / wall for name, (wall, _) in totals.items()}
    costs = {name: cpu / episodes for name, (_, cpu) in totals.items()}
    return {
        "appworld_vs_http_episodes": round(rates["pool"] / rates["http"], 2),
        "cpu_share_of_http": round(costs["pool"] / costs["http"], 3),
        "episodes_each": episodes,
        "episodes_that_differ": different,
        "episodes_per_s": {name: round(rate, 2) for name, rate in rates.items()},
        "cpu_ms_per_episode": {name: round(cost, 1) for name, cost in costs.items()},
    }


def resets(way: ByPool, task: str) -> dict[str, float]:
    """Opening an episode of a warm task, and how much the lasting processes grow over ROW episodes."""
    times = []
    for _ in range(RESETS):
        begin = time.perf_counter()
        episode = way.pool.open(task)
        times.append(time.perf_counter() - begin)
        episode.close()
    before = sum(private_mb(pid) for pid in way.pool.lasting_pids)
    for _ in tqdm(range(ROW), desc="episodes in a row", mininterval=5):
        way.play(0, task, ["print(apis.supervisor.show_profile())"])
    after = sum(private_mb(pid) for pid in way.pool.lasting_pids)
    return {
        "warm_reset_ms_median": round(1e3 * statistics.median(times), 1),
        "memory_growth_after_200_episodes": round(after / before - 1, 4),
    }


def memory(way: ByPool, tasks: list[str]) -> dict[str, float]:
    """Memory that LIVE played episodes share with no other process."""
    live = [way.pool.open(tasks[number // PER_TASK]) for number in range(LIVE)]
    for number, episode in enumerate(live):
        for code in blocks(ROOT, tasks[number // PER_TASK]):
            episode.run(code)
    total = sum(private_mb(pid) for episode in live for pid in episode.pids.values())
    for episode in live:
        episode.close()
    return {"private_mb_per_live_episode": round(total / LIVE, 1)}


if __name__ == "__main__":
    python = python_executable()
    ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".loopline/roots/benchmark")
    if not ROOT.exists():
        author_root(ROOT, python, 2502, COUNTS)
    write_result(
        "appworld_episodes",
        {"workers": WORKERS, **compare(python, ROOT, (ROOT / "data/datasets/train.txt").read_text().split())},
        (),
    )
