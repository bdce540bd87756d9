"""What reading and writing dvc.lock costs after each stage, by the lines in the lock: by DVC, and by `LockFile`.

    python tests/benchmarks/dvc_lock.py LOCK [--iterations 90]

LOCK is that of a finished run, whose entries of iteration i002 are repeated. Processor seconds of one process, the
smallest of three. A lock grows with the run, so that over a run the mean of all stages is half of the last one's.
"""

import argparse
import copy
import tempfile
import time
from pathlib import Path
from typing import Any

from dvc.utils.serialize import dumps_yaml
from dvc.utils.serialize._yaml import parse_yaml_for_update
from result_file import write_result
from ruamel.yaml import YAML

from flows.dag.lock_file import LockFile

REPEATED, ROUNDS = "i002", 3
Entries = dict[str, Any]


def lock_of(stages: Entries, iterations: int, *, alone: bool = False) -> str:
    """Return the text of a lock with so many iterations; `alone`: without the stages that are run once."""
    kept = {} if alone else {name: entry for name, entry in stages.items() if "@i" not in name}
    repeated = {name: entry for name, entry in stages.items() if name.endswith(f"@{REPEATED}")}
    for number in range(1, iterations + 1):
        for name, entry in repeated.items():
            kept[name.replace(REPEATED, f"i{number:03}")] = copy.deepcopy(entry)
    return str(dumps_yaml({"schema": "2.0", "stages": kept}))


def without_common_inputs(stages: Entries) -> Entries:
    """Return entries whose stages of an iteration depend on what other iterations wrote, and on one file else."""
    lean = copy.deepcopy(stages)
    for name, entry in lean.items():
        if "@i" in name:
            own = [each for each in entry["deps"] if "data/iterations" in each["path"]]
            entry["deps"] = own + [each for each in entry["deps"] if each not in own][:1]
    return lean


def cost_of(text: str) -> dict[str, Any]:
    """Return the lines, and the least seconds of reading them for an update and writing them."""
    took = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        content = parse_yaml_for_update(text, "dvc.lock")
        read = time.process_time()
        dumps_yaml(content)
        took.append((read - begun, time.process_time() - read))
    return {
        "lines": text.count("\n"),
        "read_s": round(min(read for read, _ in took), 2),
        "write_s": round(min(written for _, written in took), 2),
        "lock_file_s": round(lock_file_s(text), 3),
    }


def lock_file_s(text: str) -> float:
    """Return the least seconds of putting one entry of a lock that is known into `text` anew."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dvc.lock"
        path.write_text(text, encoding="utf-8")
        lock = LockFile(path)
        for _ in range(1 + ROUNDS):
            begun = time.process_time()
            with lock.rewritten() as content:
                name, entry = content["stages"].popitem()
                content["stages"][name] = copy.deepcopy(entry)
            took.append(time.process_time() - begun)
    return min(took[1:])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="The cost of dvc.lock in DVC.")
    parser.add_argument("lock", type=Path)
    parser.add_argument("--iterations", type=int, default=90)
    asked = parser.parse_args()
    stages: Entries = YAML(typ="safe").load(asked.lock)["stages"]
    texts = {
        "one lock": lock_of(stages, asked.iterations),
        "one lock, half of the iterations": lock_of(stages, asked.iterations // 2),
        "one lock, common inputs in one file": lock_of(without_common_inputs(stages), asked.iterations),
        "a lock for ten iterations": lock_of(stages, 10, alone=True),
        "a lock for each iteration": lock_of(stages, 1, alone=True),
    }
    write_result("dvc_lock", {name: cost_of(text) for name, text in texts.items()}, ("dvc", "ruamel.yaml"))


if __name__ == "__main__":
    main()
