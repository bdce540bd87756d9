"""Part of the GPU check: whether the device's memory is free again after a dropped policy and after each stage.

    tests/benchmarks/gpu/check.sh memory

`dropped`: a learner of 1.5B's shape takes a step, is dropped from the process cache as collection drops it, and what is
left is measured. `stages`: what each stage of the profile `drill` leaves on the device once its process's cache is
closed. Whether the planned memory is right is what the part `mfu` measures, whose rows are the large ones.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from stages_in_process import make_project, run_stages

from flows.params_file import params_of
from gpu.device import attempt, find_device, held_bytes, write_part
from gpu.mfu import make_policy, make_rollout
from tasks.core.capacity.hardware import GIB
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.learner.learner import backward
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import pack_rollouts
from tasks.core.processes.resources import return_device_blocks, return_freed_memory

DIGITS = 5
"""Of GiB: a model in little has some hundred KiB."""


def step(cache: ProcessCache, name: str, tokens: int, device: torch.device) -> None:
    """Take the gradient of one pack with a learner that the cache keeps."""
    policy, shape, config = cache.get("learner_policy", name, lambda: make_policy(name, device, True))
    rollouts = [make_rollout(tokens, shape.vocabulary)]
    packs = pack_rollouts(rollouts, [0], config.tokens_per_pack, device)
    objective = Objective.of(config, 1, temperature=1.0)
    backward(policy, compute_fixed_logprobs(policy, packs, rollouts, objective).attach(packs), objective)


def dropped_policy(device: torch.device) -> dict[str, Any]:
    """Return GiB on the device with a learner in the cache, and after it was dropped."""
    name, tokens = ("1.5b", 8192) if device.type == "cuda" else ("toy", 256)
    cache, before = ProcessCache(), held_bytes(device)
    step(cache, name, tokens, device)
    held = held_bytes(device) - before
    cache.drop("learner_policy")
    return_device_blocks()
    found = {"model": name, "held_gib": held / GIB, "left_gib": (held_bytes(device) - before) / GIB}
    if device.type == "cuda":
        found["reserved_gib"] = torch.cuda.memory_reserved() / GIB
    return {key: round(value, DIGITS) if isinstance(value, float) else value for key, value in found.items()}


def left_by_stages(device: torch.device) -> dict[str, float]:
    """Return the GiB that each stage of a small run leaves on the device when nothing is kept for the next one."""
    cache, before, left = ProcessCache(), held_bytes(device), dict[str, float]()

    def look(stage: str) -> None:
        cache.close()
        return_freed_memory()
        left[stage] = round((held_bytes(device) - before) / GIB, DIGITS)

    with tempfile.TemporaryDirectory() as folder:
        run_stages(make_project(Path(folder)), params_of("drill"), cache, look)
    return left


def main(_: float) -> None:
    device = find_device()
    figures: dict[str, Any] = {"dropped": attempt(lambda: dropped_policy(device))}
    write_part("memory", device, figures)
    stages = attempt(lambda: left_by_stages(device))
    known = [left for left in stages.values() if isinstance(left, float)]
    write_part("memory", device, figures | {"stages": stages} | ({"most_left_gib": max(known)} if known else stages))
