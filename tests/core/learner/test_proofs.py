"""The proof that the learner's passes compute what the model does; the stage preflight tries it on many models."""

from collections.abc import Callable

import pytest
from torch import nn
from transformers import OPTConfig, OPTForCausalLM

from tasks.core.config.update import UpdateConfig
from tasks.core.learner import proofs
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.proofs import AnotherFunction, prove_passes


def test_a_head_that_computes_something_else_is_refused_by_name(
    make_policy: Callable[..., nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    prepare_forward(policy, UpdateConfig(), SINGLE)
    assert prove_passes(policy, UpdateConfig()) == "packed"
    own = proofs.own_logprobs
    monkeypatch.setattr(proofs, "own_logprobs", lambda *given: own(*given) + 2e-3)
    with pytest.raises(AnotherFunction, match=r"Qwen2ForCausalLM: the learner's log-probs differ .* in packing"):
        prove_passes(policy, UpdateConfig())


def test_a_head_that_calls_something_else_than_its_body_is_one_line() -> None:
    """OPT's head calls its body's decoder."""
    sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 1}
    model = OPTForCausalLM(OPTConfig(vocab_size=300, num_attention_heads=4, max_position_embeddings=2048, **sizes))
    with pytest.raises(
        ValueError, match=r"^OPTForCausalLM: its head takes no hidden .* architecture is not supported$"
    ):
        prove_passes(model, UpdateConfig())
