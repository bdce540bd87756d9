"""The work of two gloo ranks for test_ranks.py: a launcher runs `python -m tests.core.learner.two_ranks BASE OUT`.

The main rank writes the results of both ranks into OUT: `gradients.pt`, learners, and the result of update `job.json`.
"""

import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner.checkpoint import restore_optimizer, save_learner
from tasks.core.learner.critic import make_critic
from tasks.core.learner.distributed import SINGLE, ProcessGroup, full_tensor, join_process_group
from tasks.core.learner.learner import Learner, UpdateDiverged, backward, make_learner, update
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.objective import Objective, read_stats
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.learner.ranks import run_rank
from tasks.core.learner.training import load_prepared
from tasks.core.learner.update_job import UpdateJob
from tasks.core.policies.loading import load_weights, save_policy, trained_tensors
from tests.core.learner.conftest import _policy as make_whole_policy
from tests.core.learner.conftest import _rollouts as make_rollouts
from tests.core.learner.conftest import apart, policy_config

CASES: dict[str, dict[str, Any]] = {
    "fsdp": {},
    "fsdp, checkpointed": {"activation_checkpointing": True, "logprob_chunk": 3},
    "fsdp, folded adapter": {"fold_adapter": True},
    "fsdp, fully trained": {"trained": "full"},
    "fsdp, stale rollouts": {"stale": True},
    "fsdp, fully trained, stale rollouts": {"stale": True, "trained": "full"},
    "fsdp, one rollout": {"count": 1},
    "fsdp, bfloat16 base": {"dtype": "bfloat16"},
    "fsdp, critic": {"critic": {}},
    "fsdp, pooled tokens": {"loss": {"average": "token"}},
    "fsdp, pairs": {"objective": "preference"},
    "fsdp, several passes": {"apart": True},
    "fsdp, fully trained, critic, several passes": {"apart": True, "trained": "full", "critic": {}},
    "replicated, critic": {
        "critic": {"whiten_advantages": True},
        "distributed": {"ranks": 2, "sharding": "replicated"},
    },
    "replicated": {"distributed": {"ranks": 2, "sharding": "replicated"}},
    "replicated, several passes": {"apart": True, "distributed": {"ranks": 2, "sharding": "replicated"}},
    "replicated, one rollout": {"count": 1, "distributed": {"ranks": 2, "sharding": "replicated"}},
}
LOW = {"trained": "full", "dtype": "bfloat16"}
RESUMED = {"minibatch": 4, "tokens_per_pack": 40, "learning_rate": 1e-2}


def make_policy(
    base: Path, group: ProcessGroup, config: UpdateConfig, trained: str = "lora", dtype: str = "float32", **how: Any
) -> nn.Module:
    """Return the policy of conftest.py, loaded from files as an update does: each of several ranks reads its parts."""
    policy = load_prepared(base, policy_config(trained, dtype), config, group)
    with tempfile.TemporaryDirectory() as folder:
        save_policy(make_whole_policy(base, trained, dtype, **how), Path(folder))
        load_weights(policy, Path(folder))
    return policy


def case_gradients(base: Path, case: dict[str, Any], group: ProcessGroup) -> dict[str, Any]:
    """Return stats and gradients of 11 rollouts in packs of 40 positions, after the policy left the old policy."""
    settings: dict[str, Any] = {
        "minibatch": 8,
        "tokens_per_pack": 40,
        "distributed": {"ranks": 2},
        "loss": {"entropy_coefficient": 0.0 if "objective" in case else 0.01},
    }
    settings |= {
        name: value for name, value in case.items() if name not in ("trained", "count", "stale", "dtype", "apart")
    }
    config, trained = UpdateConfig.model_validate(settings), case.get("trained", "lora")
    dtype = case.get("dtype", "float32")
    rollouts = make_rollouts(11)[: case.get("count")]
    if "apart" in case:
        rollouts = [apart(rollout) for rollout in rollouts]
    if config.objective == "preference":
        rollouts = [replace(found, pair=i // 2, advantage=1 - 2 * (i % 2)) for i, found in enumerate(rollouts[:10])]
    critic = config.critic and make_critic(16, config.critic, torch.device("cpu"), seed=4)
    size = config.tokens_per_pack
    packs = pack_rollouts(rollouts, range(len(rollouts)), size, torch.device("cpu"), group, pass_tokens=size)
    objective = Objective.of(config, 8, 0.7, stale=case.get("stale", False), critic=critic).of_minibatch(rollouts)
    before = make_policy(base, group, config, trained, dtype)
    fixed = compute_fixed_logprobs(before, packs, rollouts, objective, None, group)
    policy, beside = make_policy(base, group, config, trained, dtype, moved=0.01), critic.weights if critic else []
    stats = read_stats(backward(policy, fixed.attach(packs), objective, group, beside), torch.zeros(()), group)
    found = {name: full_tensor(weight.grad) for name, weight in policy.named_parameters() if weight.grad is not None}
    found |= {f"critic.{index}": weight.grad for index, weight in enumerate(beside) if weight.grad is not None}
    assert len(found) > len(beside)
    return {"stats": vars(stats), "old": fixed.old, "entropy": fixed.entropy, "gradients": found}


def resumed(base: Path, folder: Path, group: ProcessGroup = SINGLE, **kind: str) -> Learner:
    """Return the learner of `folder` on these ranks; `kind`: the trained part, and its dtype."""
    config = UpdateConfig.model_validate(RESUMED)
    policy = make_policy(base, group, config, **kind)
    load_weights(policy, folder)
    learner = make_learner(policy, config, group)
    restore_optimizer(learner, folder)
    return learner


def train(learner: Learner, rollouts: list[Rollout]) -> None:
    update(learner, rollouts, UpdateConfig.model_validate(RESUMED), temperature=1.0, seed=3)


def diverge(base: Path, group: ProcessGroup) -> str:
    """Return the error of an update on a policy with a NaN weight."""
    policy = make_whole_policy(base)
    with torch.no_grad():
        next(iter(trained_tensors(policy).values()))[0, 0] = float("nan")
    return error_of(policy, make_rollouts(5), group)


def overflow(base: Path, group: ProcessGroup) -> str:
    """Return the error of an update with one rollout whose gradient is too large for a float."""
    rollouts = make_rollouts(5)
    rollouts[2] = replace(rollouts[2], advantage=1e25, name="the large one")
    return error_of(make_whole_policy(base), rollouts, group)


def error_of(policy: nn.Module, rollouts: list[Rollout], group: ProcessGroup) -> str:
    try:
        train(make_learner(policy, UpdateConfig.model_validate(RESUMED), group), rollouts)
    except UpdateDiverged as error:
        return str(error)
    return "no error"


def main(base: Path, out: Path) -> None:
    torch.set_num_threads(1)
    with join_process_group(torch.device("cpu")) as group:
        if not group.is_main:
            warnings.simplefilter("ignore")
        results = {name: case_gradients(base, case, group) for name, case in CASES.items()}
        (out / f"diverged_{group.rank}.txt").write_text(f"{diverge(base, group)}\n{overflow(base, group)}")
        resumed_config = UpdateConfig.model_validate(RESUMED)
        learner = make_learner(make_policy(base, group, resumed_config), resumed_config, group)
        train(learner, make_rollouts(10, 1))
        save_learner(learner, out / "half_on_two")
        full = UpdateConfig.model_validate({"distributed": {"ranks": 2}})
        save_learner(make_learner(make_policy(base, group, full, "full"), full, group), out / "full_on_two")
        learner = resumed(base, out / "half_on_one", group)
        train(learner, make_rollouts(9, 2))
        save_learner(learner, out / "whole_on_two")
        learner = resumed(base, out / "low_on_one", group, **LOW)
        train(learner, make_rollouts(9, 2))
        save_learner(learner, out / "low_on_two")
        # In this process group: gloo ranks that meet twice in one process may find each other's old addresses.
        run_rank(UpdateJob.model_validate_json((out / "job.json").read_text()), group, out)
        if group.is_main:
            torch.save(results, out / "gradients.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
