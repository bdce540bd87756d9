"""Prompts that lie in a pack once have the log-probs and gradients of prompts that each rollout repeats."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from flows.params_file import params_of
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.critic import make_critic
from tasks.core.learner.distributed import ProcessGroup
from tasks.core.learner.learner import backward, make_learner, update
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.model import packed_attention, use_packed_attention, varlen_attention
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tests.core.learner.conftest import VOCABULARY, apart
from tests.core.learner.test_gradients import gradients, nudge, relative_difference

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
CPU = torch.device("cpu")
METHODS = sorted(path.stem for path in (Path(__file__).parents[3] / "flows/profiles/methods").glob("*.yaml"))
PROMPT = 9


def of_three_tasks(rollouts: list[Rollout]) -> list[Rollout]:
    """Return the rollouts behind one of three prompts each, in pairs of a better and a worse one."""
    prompts = np.random.default_rng(2).integers(0, VOCABULARY, (3, PROMPT))
    return [
        replace(
            rollout,
            token_ids=np.concatenate([prompts[row // 2 % 3], rollout.token_ids[rollout.policy_positions[0] :]]),
            policy_positions=rollout.policy_positions - rollout.policy_positions[0] + PROMPT,
            turn_advantages=np.random.default_rng(row).normal(size=4),
            turn_rewards=np.full(4, row / 12),
            advantage=1.0 - 2 * (row % 2),
            pair=row // 2,
        )
        for row, rollout in enumerate(rollouts)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_gradient_of_repeated_prompts(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, method: str
) -> None:
    config, rollouts, found = params_of(f"default {method}").update, of_three_tasks(make_rollouts(12)), []
    for shares in (False, True):
        policy = make_policy().double()
        use_packed_attention(policy)
        critic = config.critic and make_critic(16, config.critic, CPU, seed=4)
        packs = pack_rollouts(rollouts, range(12), 90, CPU, share_prefixes=shares)
        objective = Objective.of(config, 12, 0.7, critic=critic).of_minibatch(rollouts)
        base = make_policy("full", shaken=False).double()
        use_packed_attention(base)
        fixed = compute_fixed_logprobs(policy, packs, rollouts, objective, partial(nullcontext, base))
        nudge(policy)
        stats = backward(policy, fixed.attach(packs), objective)
        found.append((gradients(policy), sum(float(stat.loss) for stat in stats), sum(stat.tokens for stat in stats)))
    (expected, loss, tokens), (gradient, other, fewer) = found
    assert len(packs) > 1 and fewer <= tokens - 6 * (PROMPT - 1)
    assert other == pytest.approx(loss, rel=1e-6, abs=1e-6)
    assert relative_difference(gradient, expected) < 1e-6


@pytest.mark.parametrize("trained", ["lora", "full"])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("capacity", [1, 40, 10_000])
def test_any_division_over_packs_passes_and_ranks_has_the_same_gradient(
    make_policy: MakePolicy, make_rollouts: MakeRollouts, capacity: int, ranks: int, trained: str
) -> None:
    """Include rollouts of several sequences, pairs that exceed a pack, and padding."""
    rollouts, config, found = of_three_tasks(make_rollouts(10)), UpdateConfig(), []
    rollouts = [apart(rollout) if row < 4 else rollout for row, rollout in enumerate(rollouts)]
    groups = [ProcessGroup(rank=rank, size=ranks) for rank in range(ranks)]
    shared = [
        pack_rollouts(rollouts, range(10), capacity, CPU, group, capacity, share_prefixes=True) for group in groups
    ]
    assert len({tuple(len(pack.passes()) for pack in packs) for packs in shared}) == 1, "the ranks are not in step"
    whole, divided = pack_rollouts(rollouts, range(10), 10_000, CPU), list(chain.from_iterable(shared))
    for packs in (whole, divided):
        policy = make_policy(trained).double()
        use_packed_attention(policy)
        objective = Objective.of(config, 10, 1.0)
        fixed = compute_fixed_logprobs(policy, whole, rollouts, objective)
        nudge(policy)
        backward(policy, fixed.attach(packs), objective)
        found.append(gradients(policy))
    assert relative_difference(found[1], found[0]) < 1e-6


def test_an_update_shares_prompts_where_the_config_says_so(
    make_policy: MakePolicy, make_rollouts: MakeRollouts
) -> None:
    rollouts, tokens, weights = of_three_tasks(make_rollouts(12)), [], []
    for shares in (False, True, True):
        config = UpdateConfig(share_prefixes=shares, minibatch=6, epochs=1)
        learner = make_learner(make_policy(), config)
        tokens.append(sum(step.tokens for step in update(learner, rollouts, config, temperature=1.0, seed=1).steps))
        weights.append(torch.cat([weight.detach().flatten() for weight in learner.stepped]))
    assert tokens[1] < tokens[0]
    assert torch.equal(weights[1], weights[2]) and torch.allclose(weights[0], weights[1], atol=1e-4)


def test_a_pack_that_shares_by_hand() -> None:
    def rollout(*ids: int, sampled: list[int]) -> Rollout:
        count = len(sampled)
        return Rollout(np.array(ids), np.array(sampled), np.zeros(count, int), np.zeros(count, np.float32), 1.0)

    rollouts = [rollout(1, 2, 3, 4, 5, sampled=[3, 4]), rollout(1, 2, 6, sampled=[2]), rollout(1, 2, 3, 7, sampled=[3])]
    (pack,) = pack_rollouts(rollouts, range(3), 100, CPU, share_prefixes=True)
    assert (pack.rows, pack.lengths, pack.behind) == ((0, 2, 1), (2, 2, 1, 2), (-1, 0, 0, -1))
    assert pack.input_ids.tolist() == [[1, 2, 3, 4, 3, 1, 2]]
    assert pack.position_ids.tolist() == [[0, 1, 2, 3, 2, 0, 1]]
    assert pack.logit_positions.tolist() == [2, 3, 4, 6] and pack.targets.tolist() == [4, 5, 7, 6]
    assert (pack.pieces_by_pass, pack.longest) == ((4,), 4)


@pytest.mark.parametrize("window", [None, 3])
def test_what_is_behind_a_prompt_attends_to_it(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with rows that repeat the prompt; a kernel like flash-attn's gets the same keys."""
    monkeypatch.setattr("tasks.core.learner.model._BLOCK", 2)
    query, key, value = torch.randn(3, 1, 2, 11, 8, generator=torch.Generator().manual_seed(0))
    lengths, behind = (4, 5, 2), (-1, 0, 0)
    asked = {"scaling": 0.3, "sliding_window": window}
    how = {"rollout_lengths": lengths, "rollouts_behind": behind}
    found, _ = packed_attention(nn.Identity(), query, key, value, None, **how, **asked)
    for start, stop in ((4, 9), (9, 11)):
        rows = [torch.cat([heads[:, :, :4], heads[:, :, start:stop]], 2) for heads in (query, key, value)]
        alone, _ = packed_attention(nn.Identity(), *rows, None, rollout_lengths=(rows[0].shape[2],), **asked)
        assert torch.allclose(found[:, start:stop], alone[:, 4:], atol=1e-6)
        assert torch.allclose(found[:, :4], alone[:, :4], atol=1e-6)

    def kernel(rows: torch.Tensor, *given: object, **_: object) -> torch.Tensor:
        told.extend(given)
        return rows

    told: list[object] = []
    varlen_attention(query, key, value, lengths, 0.3, kernel, window, seen=(4, 9, 6))
    starts, seen = told[2:4]
    assert isinstance(starts, torch.Tensor) and starts.tolist() == [0, 4, 9, 11]
    assert isinstance(seen, torch.Tensor) and seen.tolist() == [0, 4, 13, 19] and told[4:] == [5, 9]
