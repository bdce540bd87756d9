"""Part of gpu_check.sh: a short LOOP training of the embedded policy on this device beside that on the CPU.

    python tests/benchmarks/gpu_training.py [--seed 0 --seed 1 ...] [--seconds 100]
    python tests/benchmarks/gpu_training.py --iterations 6 --seed 0 --seed 1 --seed 2     # on a CPU: the curves to meet

Pocketworld, the default profile's settings: rollouts by the engine, advantages, one update, in this process. The curve
is the mean return of the rollouts. On a GPU it is compared with the CPU's of results/gpu_training_cpu.json: `within` is
whether each mean over the seeds lies no further from the CPU's mean than 3 standard errors of the difference.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_device import describe, find_device, write_part
from result_file import write_result

from flows.configure import params_of
from tasks.core.advantages.groups import compute_advantages
from tasks.core.advantages.outcomes import Outcomes
from tasks.core.config.params import Params
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.in_process.engine import TransformersEngine
from tasks.core.interfaces.world import World
from tasks.core.learner.learner import Learner, make_learner, update
from tasks.core.learner.rollouts import Rollout
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer, save_policy, trainable_policy
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.seeding import derive_seed
from tasks.core.worlds.registry import open_world, prepare_world_folder

SHIPPED = Path(__file__).parents[2] / "data/base_policies/pocket"
CPU_CURVES = Path(__file__).parent / "results/gpu_training_cpu.json"


class Training:
    """Engine, learner and world of one seed."""

    def __init__(self, params: Params, world: World, device: torch.device, seed: int, folder: Path) -> None:
        config = PolicyConfig.model_validate(params.policy.model_dump() | {"device": device.type})
        self.params, self.world, self.seed, self.folder = params, world, seed, folder
        self.engine = TransformersEngine(load_base_model(SHIPPED, config))
        self.chat = ChatFormat(load_tokenizer(SHIPPED))
        policy = trainable_policy(load_base_model(SHIPPED, config), config, None, seed)
        self.learner: Learner = make_learner(policy, params.update)

    def iterate(self, number: int) -> float:
        """Collect, filter, update. Returns the mean return."""
        rows = self._collect(number)
        outcomes = Outcomes(
            [row["task_id"] for row in rows],
            np.array([row["return"] for row in rows]),
            np.array([row["success"] for row in rows]),
            [row["end_reason"] for row in rows],
            np.array([any(row["policy_mask"]) for row in rows]),
        )
        result = compute_advantages(outcomes, self.params.advantages)
        pairs = zip(rows, result.labels.advantages, result.kept, strict=True)
        batch = [as_rollout(row, float(advantage)) for row, advantage, kept in pairs if kept]
        if batch:
            seed = derive_seed(self.seed, "update", str(number))
            update(self.learner, batch, self.params.update, temperature=1.0, seed=seed)
        return result.summary.mean_return

    def _collect(self, number: int) -> list[dict[str, Any]]:
        collection, folder = self.params.collection, self.folder / str(number)
        save_policy(self.learner.policy, folder)
        tasks = [task for task in self.world.tasks("train") if task.difficulty <= self.params.tasks.max_difficulty]
        seed = derive_seed(self.seed, "collection", str(number))
        drawn = draw_tasks(tasks, [1.0] * len(tasks), collection.tasks_per_iteration, seed)
        planned = plan_rollouts(drawn, collection.rollouts_per_task, seed)
        settings = PlaySettings.of_training(collection)
        return play_rollouts(
            self.world, self.engine, self.chat, planned, settings, policy=folder, stats=CollectionStats()
        )


def as_rollout(row: dict[str, Any], advantage: float) -> Rollout:
    sampled = np.flatnonzero(row["policy_mask"])
    logprobs = np.array(row["engine_logprobs"], np.float32)[sampled]
    return Rollout(np.array(row["token_ids"]), sampled, np.array(row["turn_index"])[sampled], logprobs, advantage)


def curve(params: Params, device: torch.device, seed: int, iterations: int, deadline: float) -> list[float]:
    """Mean returns; shorter when the time is over."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        prepare_world_folder(params.world, Path(folder) / "world")
        world = open_world(params.world, Path(folder) / "world")
        training = Training(params, world, device, seed, Path(folder))
        while len(found) < iterations and time.monotonic() < deadline:
            found.append(round(training.iterate(len(found)), 4))
        world.close()
    return found


def against_cpu(curves: list[list[float]]) -> dict[str, Any]:
    """Each iteration's mean over the seeds beside the CPU's, in standard errors of the difference."""
    if not CPU_CURVES.exists():
        return {"skipped": f"no {CPU_CURVES.name}"}
    cpu = list(zip(*json.loads(CPU_CURVES.read_text(encoding="utf-8"))["curves"], strict=True))
    found = []
    for here, there in zip(zip(*curves, strict=False), cpu, strict=False):
        error = statistics.stdev(there) * (1 / len(here) + 1 / len(there)) ** 0.5
        found.append(round((statistics.mean(here) - statistics.mean(there)) / max(error, 1e-3), 2))
    return {"standard_errors_from_cpu": found, "within": all(abs(distance) <= 3 for distance in found)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the embedded policy shortly.")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--iterations", type=int, help="on a CPU: the curves that a GPU's are compared with")
    arguments = parser.parse_args()
    device, deadline = find_device(), time.monotonic() + arguments.seconds
    full = device.type == "cuda" or arguments.iterations
    little = (
        ()
        if full
        else ("collection.tasks_per_iteration=2", "collection.rollouts_per_task=2", "collection.early_stop=null")
    )
    params = params_of("default", little)
    iterations = arguments.iterations or (6 if full else 1)
    curves = [curve(params, device, seed, iterations, deadline) for seed in arguments.seed or [0]]
    figures: dict[str, Any] = {"seeds": arguments.seed or [0], "curves": curves}
    if arguments.iterations and device.type == "cpu":
        write_result("gpu_training_cpu", describe(device) | {"device": "CPU"} | figures)
    else:
        write_part("training", device, figures | (against_cpu(curves) if device.type == "cuda" else {}))


if __name__ == "__main__":
    main()
