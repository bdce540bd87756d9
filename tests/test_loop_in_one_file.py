"""docs/loop_in_one_file.py computes what the learner computes, and learns."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import make_learner
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.policies.loading import load_base_model, trainable_policy

pytestmark = pytest.mark.whole_runs

ROOT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def one_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loop_in_one_file", ROOT / "docs" / "loop_in_one_file.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def policy(moved: float) -> Any:
    config = PolicyConfig()
    made = trainable_policy(load_base_model(ROOT / "data/base_policies/pocket", config), config, None, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in (weight for weight in made.parameters() if weight.requires_grad):
            weight.add_(moved * torch.randn(weight.shape, generator=generator))
    return made


def conversations() -> list[tuple[list[int], list[bool], float]]:
    """Return (ids, whether each was sampled, advantage) of ragged rollouts."""
    random = np.random.default_rng(0)
    lengths = (9, 24, 17, 40)
    return [
        (random.integers(5, 500, n).tolist(), [False] * 4 + [bool(x) for x in random.integers(0, 2, n - 5)] + [True], a)
        for n, a in zip(lengths, (0.6, -0.2, -0.7, 0.3), strict=True)
    ]


def test_loss_and_gradient_are_the_learners(one_file: ModuleType) -> None:
    config = UpdateConfig(minibatch=6)  # a short minibatch: the divisor stays
    old, ours, theirs = policy(0.0), policy(0.05), policy(0.05)
    rollouts, plain = [], []
    for ids, sampled, advantage in conversations():
        where = np.flatnonzero(sampled)
        with torch.no_grad():
            row = one_file.Rollout("r", None, None, ids, sampled, advantage=advantage)
            before = one_file.logprobs(old, [row])[0]
        turns = np.zeros(len(where), dtype=np.int64)
        rollouts.append(Rollout(np.array(ids), where, turns, before.numpy(), advantage))
        plain.append((row, before))

    learner = make_learner(theirs, config)
    objective = Objective.of(config, len(rollouts), one_file.TEMPERATURE)
    packs = list(pack_rollouts(rollouts, range(len(rollouts)), 10_000, CPU))
    fixed = compute_fixed_logprobs(make_learner(old, config).policy, packs, rollouts, objective, None, learner.group)
    (pack,) = fixed.attach(packs)
    expected, _ = objective.of_minibatch(rollouts)(theirs, pack)
    expected.backward()

    new, rollout_ids = one_file.logprobs(ours, [row for row, _ in plain])
    advantages = torch.tensor([row.advantage for row, _ in plain])[rollout_ids]
    found = one_file.loop_loss(new, torch.cat([before for _, before in plain]), advantages, rollout_ids, 6)
    found.backward()
    assert found.item() == pytest.approx(expected.item(), abs=1e-6) and found.item() != 0
    gradients = [weight.grad for weight in ours.parameters() if weight.requires_grad]
    others = [weight.grad for weight in theirs.parameters() if weight.requires_grad]
    assert len(gradients) == len(others) > 0
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-6, rtol=1e-4)


def test_advantages_leave_the_own_return_out(one_file: ModuleType) -> None:
    class Task:
        task_id = "t"

    rollouts = [one_file.Rollout(str(i), Task(), None, episode_return=r) for i, r in enumerate((1.0, 0.0, 0.5))]
    one_file.set_advantages(rollouts)
    assert [rollout.advantage for rollout in rollouts] == [0.75, -0.75, 0.0]


def test_it_learns_pocketworld(one_file: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    returns = one_file.main(tmp_path, iterations=3)
    assert returns[-1] > returns[0] + 0.05
