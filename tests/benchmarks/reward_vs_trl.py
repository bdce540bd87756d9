"""Time to reward beside TRL's GRPOTrainer: both train the shipped base policy in pocketworld until dev TGC is 80.

    python tests/benchmarks/reward_vs_trl.py [--iterations N] [--seeds N ...]

Same base policy, adapter, tasks, rollouts per iteration, limits, minibatch, epochs, clipping and learning rate; one run
after the other, seconds and processor seconds of each until an evaluation first reaches the goal. Evaluations (each
iteration, dev at a low temperature), loading and making the world are off the clock. The mean of a ratio over seeds is
of its logarithm.

loopline: its stages in one process, as `dvc repro` runs them, artifacts written and all; early stop of rollouts and the
filter of small advantages are on, as in the default. TRL is given the agent loop as its
`rollout_func`: conversations step through pocketworld side by side, every turn is sampled by the trainer's own
`_generate_single_turn`, as its tool loop does. Its loss is GRPO's without division by the standard deviation.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processor_time import Clock
from result_file import write_result
from stages_in_process import Project, temporary_project

from flows.params_file import params_of
from tasks.core.config.params import Params
from tasks.core.evaluation.differences import student
from tasks.core.records.documents import read_document
from tasks.core.records.scores import Evaluation

TRL = ("trl==1.16.0", "datasets==5.2.0", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==4.1.0")
FOLDER = Path(__file__).parents[2] / ".loopline" / "interpreters" / "benchmark-trl-1.16.0"
"""TRL's own, on this project's torch, transformers and peft."""
ROOT = Path(__file__).parents[2]
GOAL = 80.0
"""Dev TGC, percent."""
MINIBATCH = 36
"""TRL's must divide the rollouts of an iteration."""
CONFIDENCE = 0.95
Curve = list[dict[str, float]]


def settings(iterations: int, seed: int) -> Params:
    knobs = [f"iterations={iterations}", f"seed={seed}", f"update.minibatch={MINIBATCH}", "evaluation.every=1"]
    return params_of("default", knobs)


def loopline(params: Params, project: Project) -> Curve:
    """After each iteration: seconds, processor seconds and dev TGC in percent."""

    def dev_tgc(key: str) -> float:
        project.run("evaluate_policy", key)
        return read_document(project.layout.evaluation(key), Evaluation).tgc

    project.prepare()
    curve = [{"s": 0.0, "processor_s": 0.0, "dev_tgc": dev_tgc("i000")}]
    clock = Clock()
    for key in params.dag.previous:
        project.train(key)
        seconds, processor = clock.read()
        with clock.paused():
            curve.append({"s": seconds, "processor_s": processor, "dev_tgc": dev_tgc(key)})
    project.cache.close()  # nothing of it may run beside TRL
    return curve


def trl(params: Params, project: Project) -> Curve:
    """The same of TRL, in a process that has it. `project` has the world and the base policy that `loopline` made."""
    root = project.layout.root
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT), str(FOLDER)])
    command = [sys.executable, str(Path(__file__).parent / "reward_trl.py"), str(root), params.model_dump_json()]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    curve: Curve = json.loads((root / "trl_curve.json").read_text(encoding="utf-8"))
    return curve


def to_goal(curve: Curve) -> dict[str, float] | None:
    """The first point that reaches the goal; None where none does."""
    return next((point for point in curve if point["dev_tgc"] >= GOAL), None)


def ratios(curves: dict[str, Curve]) -> dict[str, Any]:
    """TRL's time over loopline's, to the goal and per iteration (the last point of each)."""
    goal = {side: to_goal(curve) for side, curve in curves.items()}
    found: dict[str, Any] = {"to_goal": goal}
    for unit in ("s", "processor_s"):
        first = {side: point[unit] for side, point in goal.items() if point}
        found[f"trl_vs_loopline_{unit}"] = round(first["trl"] / first["loopline"], 2) if len(first) == 2 else None
        each = {side: curve[-1][unit] / (len(curve) - 1) for side, curve in curves.items()}
        found[f"trl_vs_loopline_{unit}_per_iteration"] = round(each["trl"] / each["loopline"], 2)
    return found


def over_seeds(seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each ratio's mean over the seeds with its interval; None where some seed has none, as it missed the goal."""
    names = [name for name in seeds[0] if name.startswith("trl_vs_loopline")]
    return {name: _mean_ratio([seed[name] for seed in seeds]) for name in names}


def _mean_ratio(values: Sequence[float | None]) -> dict[str, Any] | None:
    logarithms = [math.log(value) for value in values if value is not None]
    if len(logarithms) < len(values):
        return None
    mean, count = statistics.fmean(logarithms), len(logarithms)
    if count < 2:
        return {"mean": round(math.exp(mean), 2), "interval": None}
    reach, _ = student(mean, statistics.stdev(logarithms) / count**0.5, count - 1, CONFIDENCE)
    return {
        "mean": round(math.exp(mean), 2),
        "interval": [round(math.exp(end), 2) for end in (mean - reach, mean + reach)],
    }


def compared(iterations: int, seed: int) -> dict[str, Any]:
    params = settings(iterations, seed)
    with temporary_project(params) as project:
        curves = {side.__name__: side(params, project) for side in (loopline, trl)}
    rounded = {side: [{k: round(v, 2) for k, v in point.items()} for point in curve] for side, curve in curves.items()}
    return {"seed": seed, **ratios(curves), "curves": rounded}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the time to a reward with TRL's.")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    if not FOLDER.exists():
        subprocess.run(["uv", "pip", "install", "--target", str(FOLDER), "--no-deps", *TRL], check=True)
    seeds = [compared(arguments.iterations, seed) for seed in arguments.seeds]
    write_result("reward_vs_trl", {"trl": TRL[0], "goal_dev_tgc": GOAL, **over_seeds(seeds), "seeds": seeds})


if __name__ == "__main__":
    main()
