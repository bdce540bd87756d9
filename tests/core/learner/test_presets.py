"""Presets against the objectives of their papers, each written out again in float64: labels, loss and gradient."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flows.params_file import params_of
from tasks.core.advantages.groups import compute_advantages
from tasks.core.learner.packing import Rollout
from tests.core.advantages.test_labels import outcomes
from tests.core.learner.test_objective import compare

MakePolicy = Callable[..., nn.Module]
MakeRollouts = Callable[..., list[Rollout]]
GROUPS = np.array([[1.0, 0.5, 0.0], [0.25, 1.0, 1.0], [0.5, 0.5, 0.5]])
"""Returns of three tasks: one rollout of the first has the task's mean; those of the last are all equal."""
COUNT = GROUPS.size


class Paper(NamedTuple):
    """The objective that a paper maximises."""

    advantages: Callable[[np.ndarray], np.ndarray]
    """Maps the tokens of each rollout [tasks, K] to advantages [tasks, K]."""
    clip: tuple[float, float]
    part: Callable[[Tensor, int, int], Tensor]
    """Maps values [P], the tokens of all rollouts and the tokens of those in groups of different returns to a rollout's
    part [] of the sum.
    """
    kl: float = 0.0


def over_std(returns: np.ndarray, ddof: int) -> np.ndarray:
    std = returns.std(axis=1, ddof=ddof, keepdims=True)
    centred = returns - returns.mean(axis=1, keepdims=True)
    return np.divide(centred, std, out=np.zeros_like(centred), where=std > 0)


def over_std_of_tokens(tokens: np.ndarray) -> np.ndarray:
    """Return REINFORCE++'s advantages: mean and sample std over the batch's tokens, each with its rollout's return."""
    spread = np.repeat(GROUPS.ravel(), tokens.ravel())
    normalised: np.ndarray = (GROUPS - spread.mean()) / spread.std(ddof=1)
    return normalised


def mean_of_rollouts(values: Tensor, everything: int, mixed: int) -> Tensor:
    return values.mean() / COUNT


def mean_of_tokens(values: Tensor, everything: int, mixed: int) -> Tensor:
    return values.sum() / everything


def mean_of_tokens_in_mixed_groups(values: Tensor, everything: int, mixed: int) -> Tensor:
    return values.sum() / mixed


def sum_over_512(values: Tensor, everything: int, mixed: int) -> Tensor:
    return values.sum() / 512 / COUNT


LOOPS_CLIP = (1 / 1.1, 1.1)
"""Clip range where the update is one on-policy step, without weights: GRPO as in the LOOP paper, CANOPY."""
PAPERS = {
    "grpo": Paper(lambda _: over_std(GROUPS, 0), LOOPS_CLIP, mean_of_rollouts, 0.04),
    "dr_grpo": Paper(lambda _: GROUPS - GROUPS.mean(1, keepdims=True), (0.8, 1.2), sum_over_512),
    "dapo": Paper(lambda _: over_std(GROUPS, 1), (0.8, 1.28), mean_of_tokens_in_mixed_groups),
    "gspo": Paper(lambda _: over_std(GROUPS, 1), (1 - 3e-4, 1 + 4e-4), mean_of_rollouts),
    "reinforce_pp": Paper(over_std_of_tokens, (0.8, 1.2), mean_of_tokens, 0.01),
    "canopy": Paper(lambda _: over_std((GROUPS == 1).astype(float), 1), LOOPS_CLIP, mean_of_tokens, 1e-4),
}


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_is_its_papers_objective(make_policy: MakePolicy, make_rollouts: MakeRollouts, name: str) -> None:
    paper, params = PAPERS[name], params_of(f"default {name}")
    rows = [(f"task {task}", value, value == 1) for task, group in enumerate(GROUPS.tolist()) for value in group]
    drawn = make_rollouts(COUNT)
    sizes = [len(rollout.turns) for rollout in drawn]
    labelled = compute_advantages(outcomes(*rows, tokens=sizes), params.advantages)
    tokens = sum(sizes), sum(sizes[:6])
    wanted = paper.advantages(np.array(sizes).reshape(GROUPS.shape)).ravel()
    kept = [
        replace(drawn[row], name=str(row), advantage=float(labelled.labels.advantages[row]))
        for row in np.flatnonzero(labelled.kept)
    ]

    def naive(new: list[Tensor], old: list[Tensor], base: list[Tensor], rollouts: list[Rollout]) -> Tensor:
        """Return the loss; a dropped rollout has no advantage and no KL penalty, and adds nothing."""
        total = torch.zeros((), dtype=torch.float64)
        for now, before, reference, rollout in zip(new, old, base, rollouts, strict=True):
            weights, advantage = (now - before).exp(), wanted[int(rollout.name)]
            if name == "gspo":
                weights = (now - before).mean().exp().expand(len(now))
            values = torch.minimum(weights * advantage, weights.clamp(*paper.clip) * advantage)
            values = values - paper.kl * ((reference - now).exp() - 1 - (reference - now))
            total = total + paper.part(values, *tokens)
        return -total

    dropped = sorted(set(range(COUNT)) - {int(rollout.name) for rollout in kept})
    assert paper.kl == 0 or not dropped
    assert not wanted[dropped].any()
    changes: dict[str, Any] = {"tokens_per_pack": 40, "logprob_chunk": 7}
    if params.update.minibatch is not None:
        changes["minibatch"] = COUNT
    compare(make_policy, kept, params.update.model_copy(update=changes), naive)
