"""The learner beside TRL's GRPOTrainer: loss and backward on the same model and the same rollouts, on a CPU.

    python tests/benchmarks/learner_vs_trl.py [long]

TRL (pinned below, on this project's own torch, transformers and peft) is put into a folder of its own under .loopline/.
Both sides get the same old log-probs and advantages and make the same gradients (`gradient_difference`, relative, over
one minibatch). Optimizer steps and sampling are left out on both sides.

Speed: both in one process, taking turns; each at its own fastest setting, found in a first round: TRL's micro-batch
and threads (without activation checkpointing; its default has it), for the learner the size of its packs. TRL's head is
chunked as the learner's is (`add_fused_lm_head`, its default), but runs on all tokens of a completion. Its kernels for
GPUs (Triton, Liger, padding-free rows with flash-attention) do not run here, on either side.
Tokens are those of the rollouts, without padding. Memory: each side in a process of its own, at the same setting as for
speed; what is counted is the highest resident size during one pass (`long`: over the 2 longest rollouts, as the others
change nothing) minus the resident size before it, when model, trainer and rollouts are there and a small minibatch has
warmed up allocator and kernels. `trl_lean` is that of TRL with micro-batches of one rollout and activation
checkpointing, `learner_lean` that of the learner with packs of one rollout, one at a time, and checkpointing.
"""

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from learner_workloads import SHIPPED, WORKLOADS
from result_file import write_result
from torch import Tensor, nn
from transformers.utils import logging

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import backward as packed_backward
from tasks.core.learner.learner import make_learner
from tasks.core.learner.logprobs import FixedLogprobs, compute_fixed_logprobs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.processes.usable_cores import usable_cores

TRL = ("trl==1.16.0", "datasets==5.2.0", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==4.1.0")
FOLDER = Path(__file__).parents[2] / ".loopline" / "interpreters" / "benchmark-trl-1.16.0"
MINIBATCH = 40
CORES = usable_cores()
CPU = torch.device("cpu")
SIDES = ("learner", "trl", "learner_lean", "trl_lean")
Pass = Callable[[Sequence[Rollout], Sequence[Tensor]], None]


def config(tokens: int, checkpointing: bool = False) -> UpdateConfig:
    """Symmetric clipping, since TRL has no other."""
    settings = {"tokens_per_pack": tokens, "fold_adapter": True, "minibatch": MINIBATCH}
    settings["activation_checkpointing"] = checkpointing
    return UpdateConfig.model_validate({**settings, "loss": {"clip_epsilon": 0.1, "lower_bound": "symmetric"}})


def old_logprobs(make_policy: Callable[[], nn.Module], rollouts: Sequence[Rollout]) -> list[Tensor]:
    policy = make_learner(make_policy(), config(2048)).policy
    packs = pack_rollouts(rollouts, range(len(rollouts)), 2048, CPU)
    return compute_fixed_logprobs(policy, packs, rollouts, Objective.of(config(2048), len(rollouts), 1.0)).old


def learner_side(policy: nn.Module, tokens: int, checkpointing: bool = False, threads: int = 1) -> Pass:
    settings = config(tokens, checkpointing)
    policy = make_learner(policy, settings).policy

    def backward(rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> None:
        torch.set_num_threads(threads)  # as many packs at a time as there are cores for
        packs = pack_rollouts(rollouts, range(len(rollouts)), tokens, CPU)
        fixed = FixedLogprobs(list(old), None, 0.0)
        packed_backward(policy, fixed.attach(packs), Objective.of(settings, MINIBATCH, temperature=1.0))

    return backward


def trl_side(policy: nn.Module, batch: int, threads: int, checkpointing: bool) -> Pass:
    import learner_trl

    trainer = learner_trl.make_trainer(policy, str(SHIPPED), batch, MINIBATCH, checkpointing)

    def backward(rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> None:
        torch.set_num_threads(threads)
        learner_trl.backward(trainer, rollouts, old, batch)

    return backward


def pass_over(policy: nn.Module, run: Pass, rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> float:
    """Seconds of loss and backward over all rollouts, minibatch by minibatch."""
    begin = time.perf_counter()
    for start in range(0, len(rollouts), MINIBATCH):
        policy.zero_grad(set_to_none=True)
        run(rollouts[start : start + MINIBATCH], old[start : start + MINIBATCH])
    return time.perf_counter() - begin


def gradient(policy: nn.Module) -> Tensor:
    found = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    return torch.cat([found[name].flatten() for name in sorted(found)])


def measure_speed(name: str, rollouts: list[Rollout], old: list[Tensor]) -> dict[str, Any]:
    work = WORKLOADS[name]
    ours = {tokens: work.policy() for tokens in work.packs}
    runs = {tokens: learner_side(policy, tokens) for tokens, policy in ours.items()}
    theirs = {(batch, threads): work.policy() for batch in work.micro_batches for threads in {1, CORES}}
    trl_runs = {key: trl_side(policy, *key, False) for key, policy in theirs.items()}
    part, part_old = rollouts[: work.tried_on], old[: work.tried_on]
    tokens = min(runs, key=lambda key: _best(ours[key], runs[key], part, part_old))
    key = min(trl_runs, key=lambda key: _best(theirs[key], trl_runs[key], part, part_old))
    ours_gradient, trl_gradient = gradient(ours[tokens]), gradient(theirs[key])
    rounds = [
        (pass_over(theirs[key], trl_runs[key], rollouts, old), pass_over(ours[tokens], runs[tokens], rollouts, old))
        for _ in range(work.rounds)
    ]
    count = sum(rollout.length + 1 for rollout in rollouts)
    return {
        "learner_vs_trl_speed": round(statistics.median(trl / own for trl, own in rounds), 2),
        "learner_tokens_per_s": round(statistics.median(count / own for _, own in rounds)),
        "trl_tokens_per_s": round(statistics.median(count / trl for trl, _ in rounds)),
        "gradient_difference": float((ours_gradient - trl_gradient).norm() / trl_gradient.norm()),
        "learner_tokens_per_pack": tokens,
        "trl_micro_batch": key[0],
        "trl_threads": key[1],
    }


def _best(policy: nn.Module, run: Pass, rollouts: Sequence[Rollout], old: Sequence[Tensor]) -> float:
    return min(pass_over(policy, run, rollouts, old) for _ in range(2))


def measure_memory(name: str, side: str, setting: dict[str, Any], rollouts: list[Rollout], old: list[Tensor]) -> float:
    """MiB above what was resident before the pass."""
    policy = WORKLOADS[name].policy()
    sides: dict[str, Callable[[], Pass]] = {
        "learner": lambda: learner_side(policy, setting["learner_tokens_per_pack"]),
        "learner_lean": lambda: learner_side(policy, 1, checkpointing=True, threads=CORES),
        "trl": lambda: trl_side(policy, setting["trl_micro_batch"], setting["trl_threads"], False),
        "trl_lean": lambda: trl_side(policy, 1, setting["trl_threads"], True),
    }
    run = sides[side]()
    rows = sorted(range(len(rollouts)), key=lambda row: rollouts[row].length)
    small, large = rows[: WORKLOADS[name].tried_on], sorted(rows[-WORKLOADS[name].weighed_on :])
    pass_over(policy, run, [rollouts[row] for row in small], [old[row] for row in small])
    Path("/proc/self/clear_refs").write_text("5")  # the highest resident size starts anew (proc(5))
    before = _resident("VmRSS")
    pass_over(policy, run, [rollouts[row] for row in large], [old[row] for row in large])
    return round(_resident("VmHWM") - before, 1)


def _resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (found,) = (int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return found / 1024


def child(*arguments: str) -> Any:
    """Figures that this file prints in a process that has TRL."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(FOLDER)])
    result = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


def measure(name: str, folder: Path) -> dict[str, Any]:
    work = WORKLOADS[name]
    rollouts = work.rollouts()
    file = folder / f"{name}.pickle"
    file.write_bytes(pickle.dumps((rollouts, old_logprobs(work.policy, rollouts))))
    speed = child("--speed", name, str(file))
    memory = {side: child("--memory", name, str(file), side, json.dumps(speed)) for side in SIDES}
    lengths = [rollout.length + 1 for rollout in rollouts]
    return {
        **speed,
        "learner_vs_trl_memory": round(memory["learner"] / memory["trl"], 3),
        "lean_learner_vs_lean_trl_memory": round(memory["learner_lean"] / memory["trl_lean"], 3),
        "peak_mib": memory,
        "rollouts": len(rollouts),
        "tokens": sum(lengths),
        "longest_rollout": max(lengths),
        "policy_tokens": sum(len(rollout.policy_positions) for rollout in rollouts),
        "parameters": sum(weight.numel() for weight in work.policy().parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the learner with TRL.")
    parser.add_argument("workload", nargs="?", choices=WORKLOADS, default="shipped")
    parser.add_argument("--speed", nargs=2, metavar=("WORKLOAD", "FILE"))
    parser.add_argument("--memory", nargs=4, metavar=("WORKLOAD", "FILE", "SIDE", "SETTING"))
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    if arguments.speed or arguments.memory:
        name, file, *rest = arguments.speed or arguments.memory
        rollouts, old = pickle.loads(Path(file).read_bytes())
        found = (
            measure_memory(name, rest[0], json.loads(rest[1]), rollouts, old)
            if rest
            else measure_speed(name, rollouts, old)
        )
        print(json.dumps(found))
        return
    if not FOLDER.exists():
        subprocess.run(["uv", "pip", "install", "--target", str(FOLDER), "--no-deps", *TRL], check=True)
    name = arguments.workload
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            "trl": TRL[0],
            "rounds": WORKLOADS[name].rounds,
            "minibatch": MINIBATCH,
            **measure(name, Path(folder)),
        }
    write_result("learner_vs_trl" if name == "shipped" else f"learner_vs_trl_{name}", figures)


if __name__ == "__main__":
    main()
