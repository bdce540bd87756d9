"""Part of the GPU check: a short LOOP training of the embedded policy on this device beside that on the CPU.

    tests/benchmarks/gpu/check.sh training
    PYTHONPATH=.:tests/benchmarks python -m gpu.training SEED [SEED ...]     # on a CPU: the curves to meet

Pocketworld, the default profile's settings: rollouts by the engine, advantages, one update, in this process. The curve
is the mean return of the rollouts. On a GPU it is compared with the CPU's of results/gpu/training_cpu.json: `within` is
whether each mean over the seeds lies no further from the CPU's mean than 3 standard errors of the difference.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_file import write_result

from flows.params_file import params_of
from gpu.device import describe, find_device, write_part
from tasks.core.advantages.groups import compute_advantages
from tasks.core.advantages.outcomes import Outcomes
from tasks.core.config.params import Params
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.learner.learner import Learner, make_learner, update
from tasks.core.learner.packing import Rollout
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model, load_tokenizer, save_policy, trainable_policy
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.seeding import derive_seed

SHIPPED = Path(__file__).parents[3] / "data/base_policies/pocket"
CPU_CURVES = Path(__file__).parents[1] / "results/gpu/training_cpu.json"
ITERATIONS = 6
IN_LITTLE = ("collection.tasks_per_iteration=2", "collection.rollouts_per_task=2", "collection.early_stop=null")


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


def main(seconds: float) -> None:
    device, deadline = find_device(), time.monotonic() + seconds
    full = device.type == "cuda"
    params = params_of("default", () if full else IN_LITTLE)
    curves = [curve(params, device, 0, ITERATIONS if full else 1, deadline)]
    figures: dict[str, Any] = {"seeds": [0], "curves": curves}
    write_part("training", device, figures | (against_cpu(curves) if full else {}))


def write_cpu_curves(seeds: list[int]) -> None:
    """Train on the CPU with each seed, and write the curves that a GPU's are compared with."""
    device, params = torch.device("cpu"), params_of("default")
    curves = [curve(params, device, seed, ITERATIONS, deadline=float("inf")) for seed in seeds]
    write_result("gpu/training_cpu", describe(device) | {"device": "CPU", "seeds": seeds, "curves": curves})


if __name__ == "__main__":
    find_device()
    write_cpu_curves([int(seed) for seed in sys.argv[1:]])
