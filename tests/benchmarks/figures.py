"""The ten figures that matter, a line of JSON for each commit, and a warning where one of them fell.

    python tests/benchmarks/figures.py            measure, and put the commit's line into results/figures.jsonl
    python tests/benchmarks/figures.py --check    measure, and compare with the last line of the same kind of machine
    python tests/benchmarks/figures.py --draw     draw the history: docs/pictures/figures.svg

More is better for each of them. They are ratios of two ways in one run, or rates over a yardstick that is measured
before and after, so that a busy or a slower machine moves both sides. A commit's line is committed with the next one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import torch
from processor_time import processor_s
from result_file import RESULTS, machine_kind

matplotlib.use("svg")
from matplotlib import pyplot

ROOT = Path(__file__).resolve().parents[2]
HISTORY, PICTURE = RESULTS / "figures.jsonl", ROOT / "docs/pictures/figures.svg"
FALLEN = 0.2
"""Share by which a figure may fall without a warning."""
IMPORT_ROUNDS, YARDSTICK_ROUNDS = 2, 5
Figures = dict[str, float]
Line = dict[str, Any]


class Figure(NamedTuple):
    """A figure, and where a benchmark has it."""

    name: str
    benchmark: str
    read: Callable[[Any], float]
    is_rate: bool = False
    """Per processor second: divided by the yardstick."""


IMPORTS = "imports beside torch's"
READ = (
    Figure("engine beside generate", "rollouts", lambda found: found["engine_vs_generate"]),
    Figure("tokens of rollouts", "rollouts", lambda found: found["tokens_per_processor_s"], is_rate=True),
    Figure("learner beside a loop", "learner", lambda found: found["learner_vs_single"]),
    Figure("the same, per core", "learner", lambda found: found["learner_vs_single_per_core"]),
    Figure("full places in packs", "learner_packing", lambda found: 1 - found["packing_waste"]),
    Figure(
        "attention beside torch's", "decode_attention", lambda found: min(of["speed_up"] for of in found["by_size"])
    ),
    Figure("sandbox beside python", "sandbox", lambda found: found["fresh_interpreter_over_start"]),
    Figure("steps of Sokoban", "world_steps", lambda found: found["steps_per_s"]["sokoban"]["median"], is_rate=True),
    Figure("steps of WebShop", "world_steps", lambda found: found["steps_per_s"]["webshop"]["median"], is_rate=True),
)
PLAIN_IMPORTS = "import torch, transformers"
STAGE_IMPORTS = "import flows.runners.stage_server, tasks.collect_rollouts, tasks.update_policy, tasks.score"


def measured() -> Figures:
    """Run every benchmark, and return the ten figures."""
    figures = {IMPORTS: imports()}
    for benchmark in dict.fromkeys(figure.benchmark for figure in READ):
        before = yardstick()
        found = run(benchmark)
        unit = statistics.fmean((before, yardstick()))
        figures |= {name: read(found) / (unit if is_rate else 1) for name, of, read, is_rate in READ if of == benchmark}
    return {name: round(figure, 3) for name, figure in figures.items()}


def run(script: str) -> Any:
    """Run a benchmark in its own process; return what it writes."""
    with tempfile.TemporaryDirectory() as folder:
        command, variables = (
            [sys.executable, f"tests/benchmarks/{script}.py"],
            os.environ | {"LOOPLINE_RESULTS": folder},
        )
        subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.DEVNULL)
        return json.loads((Path(folder) / f"{script}.json").read_text(encoding="utf-8"))


def yardstick() -> float:
    """Return thousands of fixed pieces of work per processor second, of Python and of small matrix products."""
    torch.set_num_threads(1)
    matrix, rates = torch.ones(96, 96), []
    for _ in range(YARDSTICK_ROUNDS):
        begun = time.process_time()
        for number in range(1000):
            matrix @ matrix
            sum({each: each + number for each in range(200)}.values())
        rates.append(1 / (time.process_time() - begun))
    return statistics.median(rates)


def imports() -> float:
    """Return the processor time of importing torch and transformers, over that of all that the main stages import."""
    ratios = []
    for _ in range(1 + IMPORT_ROUNDS):
        seconds = []
        for code in (PLAIN_IMPORTS, STAGE_IMPORTS):
            before = processor_s()
            subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
            seconds.append(processor_s() - before)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[1:])  # the first reads files from the disk


def history() -> list[Line]:
    """Return all lines, the oldest first."""
    return [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()] if HISTORY.exists() else []


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def line(figures: Figures) -> Line:
    """Return the line of this commit; one with changes that are not committed is named so."""
    changed = "-changed" if git("status", "--porcelain", "--untracked-files=no") else ""
    commit = git("rev-parse", "--short=8", "HEAD") + changed
    return {"commit": commit, "date": git("log", "-1", "--format=%cs"), "machine": machine_kind(), "figures": figures}


def put(lines: list[Line], new: Line) -> list[Line]:
    """Return the history with a line in place of those of the same commit and machine."""
    key = ("commit", "machine")
    return [*(each for each in lines if any(each[name] != new[name] for name in key)), new]


def warnings(lines: list[Line], new: Line) -> list[str]:
    """Return a sentence for each figure that fell by more than FALLEN since the last line of this kind of machine."""
    alike = [each for each in lines if each["machine"] == new["machine"] and each["commit"] != new["commit"]]
    if not alike:
        return []
    last, fell = alike[-1], []
    for name, figure in new["figures"].items():
        before = last["figures"].get(name, 0.0)
        if figure < (1 - FALLEN) * before:
            fell.append(f"{name}: {figure:g}, was {before:g} at {last['commit']} ({figure / before - 1:+.0%})")
    return fell


def draw(lines: list[Line]) -> None:
    """Draw each figure over the commits, a line per kind of machine."""
    matplotlib.rcParams["svg.hashsalt"] = "loopline"
    names = list(lines[-1]["figures"])
    figure, axes = pyplot.subplots(2, 5, figsize=(8.6, 3.6))
    for axis, name in zip(axes.flat, names, strict=True):
        for kind in dict.fromkeys(each["machine"] for each in lines):
            values = [each["figures"].get(name) if each["machine"] == kind else None for each in lines]
            places = [place for place, value in enumerate(values) if value is not None]
            axis.plot(places, [values[place] for place in places], "o-", ms=3, label=kind)
        axis.set_title(name, fontsize=7)
        axis.set_ylim(bottom=0)
        axis.set_xticks([0, len(lines) - 1], [lines[0]["date"][5:], lines[-1]["date"][5:]], fontsize=6)
        axis.tick_params(axis="y", labelsize=6)
        axis.grid(alpha=0.3)
    axes.flat[0].legend(frameon=False, fontsize=5, loc="lower left")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="write nothing; warn of what fell")
    way.add_argument("--draw", action="store_true", help="draw the history, measure nothing")
    asked = parser.parse_args()
    if not asked.draw:
        new, lines = line(measured()), history()
        print(json.dumps(new))
        for warning in warnings(lines, new):
            print(f"::warning::{warning}" if os.environ.get("GITHUB_ACTIONS") else f"WARNING: {warning}")
        if not asked.check:
            HISTORY.write_text("".join(f"{json.dumps(each)}\n" for each in put(lines, new)), encoding="utf-8")
    if not asked.check:
        draw(history())


if __name__ == "__main__":
    main()
