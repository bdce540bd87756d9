"""The twin of a base model: mutants of learner and engine are caught on it in every dtype, the real ones pass."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.models.llama4 import modeling_llama4

from tasks.core.config.engine import EngineSection
from tasks.core.config.policy import Dtype, LoraSettings, PolicyConfig
from tasks.core.engines.transformers import decode_attention
from tasks.core.learner import model as learner_model
from tasks.core.learner import proofs
from tasks.core.learner.proofs import AnotherFunction
from tasks.core.policies.layers import Asked, read_keywords
from tasks.core.policies.positions import near_borders, probe_lengths
from tasks.core.records.files import write_json
from tasks.preflight import engine_proof
from tasks.preflight.twin import Twin, make_twin

BASE: dict[str, Any] = {
    "vocab_size": 30_000,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
EXPERTS = {"num_local_experts": 32, "num_experts_per_tok": 4}
MODELS: dict[str, transformers.PretrainedConfig] = {
    "Mistral": transformers.MistralConfig(**BASE, sliding_window=4096),
    "Llama 3": transformers.LlamaConfig(**BASE, rope_parameters={**LLAMA3, "original_max_position_embeddings": 8192}),
    "gpt-oss": transformers.GptOssConfig(**BASE, **EXPERTS, head_dim=32, sliding_window=4096),
    "Llama 4": transformers.Llama4TextConfig(
        **BASE, **EXPERTS, head_dim=32, intermediate_size_mlp=1024, attention_chunk_size=8192
    ),
}
"""As on a hub: their borders are thousands of positions away."""
Change = Callable[[nn.Module, Mapping[str, Any]], Asked]


def window_ignored(module: nn.Module, keywords: Any) -> Asked:
    asked = read_keywords(module, keywords)
    keywords.pop("sliding_window", None)
    return asked._replace(window=None)


def window_off_by_one(module: nn.Module, keywords: Any) -> Asked:
    asked = read_keywords(module, keywords)
    return asked._replace(window=asked.window and asked.window + 1)


def sinks_ignored(module: nn.Module, keywords: Any) -> Asked:
    return read_keywords(module, keywords)._replace(eager=None)


@contextmanager
def asking(change: Change) -> Iterator[None]:
    """Make the attention of learner and engine read other demands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner_model, "read_keywords", change)
        patch.setattr(decode_attention, "read_keywords", change)
        yield


@contextmanager
def chunk_ignored() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_llama4, "create_chunked_causal_mask", modeling_llama4.create_causal_mask)
        yield


@contextmanager
def scaling_ignored() -> Iterator[None]:
    """Turn positions by the factors of an unscaled model."""
    rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding
    forward = rotary.forward

    def unscaled(self: Any, states: torch.Tensor, position_ids: torch.Tensor) -> Any:
        scaled = self.inv_freq
        self.inv_freq = rotary.compute_default_rope_parameters(self.config)[0].to(scaled.device)
        turned = forward(self, states, position_ids)
        self.inv_freq = scaled
        return turned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotary, "forward", unscaled)
        yield


MUTANTS = [
    ("Mistral", lambda: asking(window_ignored)),
    ("Mistral", lambda: asking(window_off_by_one)),
    ("gpt-oss", lambda: asking(window_off_by_one)),
    ("gpt-oss", lambda: asking(sinks_ignored)),
    ("Llama 3", scaling_ignored),
    ("Llama 4", chunk_ignored),
]
DTYPES: list[Dtype] = ["float32", "bfloat16"]
"""`policy.dtype`: the twin is in float32 whatever it says."""


def twin_of(name: str, dtype: Dtype, folder: Path) -> Twin:
    """Return the twin of a model of which only the config is there."""
    write_json(folder / "base" / "config.json", MODELS[name].to_dict())
    lora = LoraSettings(rank=2, alpha=4, targets=("q_proj", "k_proj", "v_proj", "o_proj"))
    twin = make_twin(
        folder / "base", PolicyConfig(source="base", dtype=dtype, device="cpu", lora=lora), folder / "twin"
    )
    assert twin is not None
    return twin


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_what_computes_the_models_own_function_passes(name: str, dtype: Dtype, tmp_path: Path) -> None:
    twin = twin_of(name, dtype, tmp_path)
    twin.prove_engine(EngineSection.of())
    assert twin.prove_passes() == ("single_eager" if name == "Llama 4" else "packed")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, mutant", MUTANTS)
def test_a_mutant_is_caught(
    name: str, mutant: Callable[[], Any], dtype: Dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acts where learner and engine compute, and not in the model's own pass."""
    twin = twin_of(name, dtype, tmp_path)
    for module, reads in ((proofs, "_read"), (engine_proof, "_play")):
        monkeypatch.setattr(module, reads, _mutated(getattr(module, reads), mutant))
    # Llama 4's cache drops what lies before a chunk, so that the engine fails on a mask without chunks.
    with pytest.raises(RuntimeError if name == "Llama 4" else AnotherFunction):
        twin.prove_engine(EngineSection.of())
    with suppress(AnotherFunction):  # the model's own attention may be a way out
        assert twin.prove_passes() == "single_eager"


def _mutated(reads: Callable[..., Any], mutant: Callable[[], Any]) -> Callable[..., Any]:
    def read(*given: Any) -> Any:
        with mutant():
            return reads(*given)

    return read


def test_probes_lie_on_both_sides_of_every_border() -> None:
    for name, border in (
        ("Mistral", "sliding_window"),
        ("gpt-oss", "sliding_window"),
        ("Llama 4", "attention_chunk_size"),
    ):
        near = near_borders(MODELS[name].to_dict())
        assert min(probe_lengths(near)) < near[border] < max(probe_lengths(near))
    near = near_borders(MODELS["Llama 3"].to_dict())
    original = near["rope_parameters"]["original_max_position_embeddings"]
    assert min(probe_lengths(near)) < original < max(probe_lengths(near))


@pytest.mark.parametrize("context, longest", [(4096, 64), (131_072, 100)])
def test_a_context_within_the_original_length_stays_within_it(context: int, longest: int) -> None:
    """Phi-3's factors change at 4,096 positions: with a shorter context its passes are packed, else they are not."""
    settings = {
        "original_max_position_embeddings": 4096,
        "max_position_embeddings": 131_072,
        "model_max_length": context,
    }
    rotary = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    near = near_borders({**settings, "rope_parameters": rotary, "sliding_window": None})
    assert max(probe_lengths(near)) == longest


def test_few_layers_hold_every_kind(tmp_path: Path) -> None:
    """Gemma 3 has five layers with a window before each without one."""
    gemma = transformers.Gemma3TextConfig(**{**BASE, "num_hidden_layers": 12}, head_dim=32)
    write_json(tmp_path / "base" / "config.json", gemma.to_dict())
    twin = make_twin(tmp_path / "base", PolicyConfig(source="base", device="cpu"), tmp_path / "twin")
    assert twin is not None
    config = transformers.AutoConfig.from_pretrained(twin.base)
    assert config.layer_types == ["sliding_attention"] * 5 + ["full_attention"]
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (128, 4, 2)
