"""Forward passes of one rollout each: the same figures as packs, for single rollouts and for pairs."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tasks.core.config.update import UpdateConfig
from tasks.core.learner import passes_proof
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.logprobs import token_logprobs
from tasks.core.learner.packing import pack_rollouts
from tasks.core.learner.passes import pack_capacity, use_passes
from tasks.core.learner.passes_proof import AnotherFunction, prove_passes
from tasks.core.learner.rollouts import Rollout


@pytest.mark.parametrize("way", ["single", "single_eager"])
def test_log_probs_and_gradients_are_those_of_packs(
    make_policy: Callable[..., nn.Module], make_rollouts: Callable[..., list[Rollout]], way: str
) -> None:
    policy, rollouts = make_policy(), make_rollouts(4)
    (pack,) = pack_rollouts(rollouts, range(4), 10_000, torch.device("cpu"))
    figures = []
    for one in ("packed", way):
        prepare_forward(policy, UpdateConfig(), SINGLE, one)  # type: ignore[arg-type]
        found = token_logprobs(policy, pack, 1.0, 1024, entropy=False).logprobs
        trained = [weight for weight in policy.parameters() if weight.requires_grad]
        figures.append((found.detach(), torch.autograd.grad(found.square().sum(), trained)))
    (packed, gradients), (alone, others) = figures
    assert torch.allclose(packed, alone, atol=1e-5)
    assert all(torch.allclose(ours, theirs, atol=1e-4) for ours, theirs in zip(gradients, others, strict=True))


def test_packs_are_of_one_rollout_where_passes_are_not_shared(make_policy: Callable[..., nn.Module]) -> None:
    policy = make_policy()
    use_passes(policy, None)
    assert pack_capacity(policy, 600) == 600
    use_passes(policy, "single")
    assert pack_capacity(policy, 600) == 1


def test_a_head_that_computes_something_else_is_refused_by_name(
    make_policy: Callable[..., nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    prepare_forward(policy, UpdateConfig(), SINGLE)
    assert prove_passes(policy, UpdateConfig()) == "packed"
    own = passes_proof.own_logprobs
    monkeypatch.setattr(passes_proof, "own_logprobs", lambda *given: own(*given) + 2e-3)
    with pytest.raises(AnotherFunction, match=r"Qwen2ForCausalLM: the learner's log-probs differ .* in packing"):
        prove_passes(policy, UpdateConfig())
