"""ScienceWorld: equal to the package's wrapper on many episodes, and steps per second and memory of one JVM.

python tests/benchmarks/scienceworld_episodes.py [EPISODES] [--record]

Episodes take all types in turn. They follow a recorded official solution on variations of its type, with other actions
in between; where a type has none recorded, they are such actions alone. `--record` first writes, for types that have
none, the official solution of one variation and what the wrapper answers to it.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import psutil
from result_file import write_result
from tqdm import tqdm

from tasks.core.text_games.prompt import answer_text
from tasks.core.worlds.scienceworld.episode import ScienceEpisode
from tasks.core.worlds.scienceworld.interpreter import java_executable, python_executable
from tasks.core.worlds.scienceworld.pool import SimulatorPool
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig
from tasks.core.worlds.scienceworld.tasks import listed
from tasks.core.worlds.scienceworld.world import PooledSession

OFFICIAL = Path(__file__).with_name("scienceworld_official.py")
RECORD = Path(__file__).parents[1] / "core/worlds/scienceworld/official.json"
FLAGS = "-XX:+UnlockExperimentalVMOptions -XX:hashCode=2"
UNLIMITED, SOLVER_HEAP_MIB = 10_000, 1536
OTHERS = (
    *("look around", "inventory", "wait", "wait1", "task", "help", "objects", "nonsense", "focus on air", "0"),
    *("open door to kitchen", "go to kitchen", "open cupboard", "look at agent", "pick up apple", "eat apple"),
    *(
        "activate stove",
        "pour water in sink",
        "mix air",
        "read book",
        "move air to agent",
        "open door",
        "go to hallway",
    ),
)
TAKEN_OUT = "\n\treset task"
"""Entries that the wrapper's `help` names and our world's does not have."""
OTHER_SHARE, LONGEST, LIVE, ROUNDS = 0.25, 40, 8, 8


class Official:
    """The package's wrapper in a process of its own."""

    def __init__(self) -> None:
        environment = os.environ | {
            "JAVA_TOOL_OPTIONS": FLAGS,
            "PATH": f"{java_executable().parent}:{os.environ['PATH']}",
        }
        pipe = subprocess.PIPE
        command = [str(python_executable()), str(OFFICIAL)]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
        )

    def play(self, episode: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(episode) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer | {"seen": [text.replace(TAKEN_OUT, "") for text in answer["seen"]]}

    def close(self) -> None:
        self._process.communicate()


def ours(pool: SimulatorPool, episode: dict[str, Any]) -> dict[str, Any]:
    """Answers of our world, as `scienceworld_official` says it."""
    limit = None if episode["limit"] == UNLIMITED else episode["limit"]
    config = ScienceWorldConfig(max_moves=limit, max_turns=UNLIMITED, thinking=False)
    task = listed("train", 0, type=episode["type"], variation=episode["variation"], instruction="-", gold=())
    session = PooledSession(pool, task)
    played = ScienceEpisode(session, config)
    seen, scores, ends = [session.opening["text"]], [], []
    for action in episode["actions"]:
        observation = played.step(answer_text([action], None))
        seen.append(observation.text)
        scores.append(played.score)
        ends.append(observation.done)
        if observation.done:
            break
    played.close()
    return {"seen": seen, "scores": scores, "ends": ends}


def drawn_episodes(recorded: dict[str, Any], variations: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    draw, names = random.Random(0), sorted(variations)
    for number in range(count):
        name = names[number % len(names)]
        known = [recorded[name]["variation"]] if name in recorded else []
        gold = recorded[name]["gold"][:LONGEST] if known else draw.choices(OTHERS, k=LONGEST)
        actions = [
            action
            for right in gold
            for action in ([draw.choice(OTHERS)] if draw.random() < OTHER_SHARE else []) + [right]
        ]
        variation = draw.choice([*known, *variations[name]["train"]])
        yield {"type": name, "variation": variation, "limit": 100, "actions": actions}


def compared(pool: SimulatorPool, official: Official, episodes: list[dict[str, Any]]) -> dict[str, Any]:
    equal = steps = 0
    different, ends, scores = [], 0, []
    for episode in tqdm(episodes, desc="episodes", mininterval=5):
        theirs, own = official.play(episode), ours(pool, episode)
        equal += theirs == own
        steps += len(own["ends"])
        ends += own["ends"][-1]
        scores.append(own["scores"][-1])
        if theirs != own:
            different.append(f"{episode['type']} {episode['variation']}")
    return {
        "episodes": len(episodes),
        "types": len({episode["type"] for episode in episodes}),
        "equal_in_text_score_and_end": equal,
        "different": different[:5],
        "steps": steps,
        "ended": ends,
        "solved": sum(score == 100 for score in scores),
        "below_zero": sum(score < 0 for score in scores),
    }


def record(pool: SimulatorPool, official: Official, variations: dict[str, Any]) -> dict[str, Any]:
    """Write a solution of each type that has none, and the wrapper's answers to it; all that is recorded then."""
    recorded: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    missing = [name for name in sorted(variations) if name not in recorded]
    solver = pool.start(SOLVER_HEAP_MIB)
    for name in tqdm(missing, desc="record", mininterval=5):
        variation = variations[name]["test"][0]
        gold = solver.ask({"solve": name, "variations": [variation]}, 600)["solutions"][0]["gold"]
        answer = official.play({"type": name, "variation": variation, "limit": UNLIMITED, "actions": gold})
        digest = sha256(json.dumps(answer["seen"]).encode()).hexdigest()[:16]
        recorded[name] = {"variation": variation, "gold": gold, "score": answer["scores"][-1], "seen": digest}
        RECORD.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    solver.end()
    return recorded


def speed(pool: SimulatorPool, recorded: dict[str, Any]) -> dict[str, Any]:
    """Steps of eight interleaved episodes in one JVM, by the CPU time of its process and the JVM, and by the clock.

    Openings are not counted, nor is the first of the rounds, in which Java compiles what it runs.
    """
    process = pool.take()
    jvm, python = psutil.Process(process.jvm_pid), psutil.Process(process.pid)
    golds = {(name, one["variation"]): one["gold"][:LONGEST] for name, one in sorted(recorded.items())}
    pairs = list(islice(cycle(golds), LIVE))
    seconds, cpu, steps, peak = 0.0, 0.0, 0, 0
    for counted in range(ROUNDS):
        numbers = [process.ask({"load": list(pair)})["episode"] for pair in pairs]
        played = ([(number, act) for act in golds[pair]] for number, pair in zip(numbers, pairs, strict=True))
        turns = [step for row in zip_longest(*played) for step in row if step]
        begin, before = time.monotonic(), _cpu(jvm, python)
        for number, action in turns:
            process.ask({"step": number, "action": action})
            steps += bool(counted)
        if counted:
            seconds, cpu = seconds + time.monotonic() - begin, cpu + _cpu(jvm, python) - before
        peak = max(peak, jvm.memory_info().rss)
        for number in numbers:
            process.ask({"close": number})
    pool.give_back(process)
    return {
        "live_episodes": len(pairs),
        "steps": steps,
        "steps_per_cpu_second": round(steps / cpu, 1),
        "steps_per_second": round(steps / seconds, 1),
        "jvm_peak_mib": round(peak / 2**20),
    }


def _cpu(*processes: psutil.Process) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def main(count: int, recording: bool) -> None:
    pool, official = SimulatorPool(python_executable(), java_executable()), Official()
    process = pool.take()
    variations = process.ask({"types": True})["variations"]
    pool.give_back(process)
    recorded = record(pool, official, variations) if recording else json.loads(RECORD.read_text())
    figures = {
        "speed": speed(pool, recorded),
        "wrapper": compared(pool, official, list(drawn_episodes(recorded, variations, count))),
    }
    official.close()
    pool.close()
    write_result("scienceworld_episodes", figures, ())


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:] if one.isdigit()]
    main(numbers[0] if numbers else 210, "--record" in sys.argv)
