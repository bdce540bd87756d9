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
from tasks.core.learner.proofs import EXACT, AnotherFunction, difference
from tasks.core.policies.architecture import TinyQwen2, new_model
from tasks.core.policies.layers import Asked, read_keywords
from tasks.core.policies.positions import near_borders, probe_lengths
from tasks.core.records.files import write_json
from tasks.preflight import engine_proof
from tasks.preflight.engine_proof import Float64Pass, prove_engine, widen
from tasks.preflight.twin import Twin, make_twin
from tests.preflight.architectures import ARCHITECTURES, PAGE, examine, rows_of

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


SIZES = TinyQwen2(width=32, heads=1, feed_forward=32, context_length=256)
CONFIG = PolicyConfig(source="base", trained="full", device="cpu")
FAINT = 3 * EXACT
"""Of a single token: the mean is that of rounding."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A checkpoint with all weights, which is its own base model."""
    new_model(SIZES, 100, 0, 1, seed=0).save_pretrained(tmp_path)
    return tmp_path


def test_a_single_token_that_is_off_is_a_difference_in_float32() -> None:
    expected = torch.zeros(100)
    found = expected.clone()
    found[7] = FAINT
    assert difference([found], [expected], torch.float32) == pytest.approx(FAINT)
    assert difference([found], [expected], torch.bfloat16) is None


def test_a_difference_that_one_rounding_makes_in_bfloat16_is_none() -> None:
    expected = torch.zeros(100)
    found = expected + 0.3
    assert difference([found], [expected], torch.bfloat16, rounding=0.16) is None
    assert difference([found], [expected], torch.bfloat16, rounding=0.14) == pytest.approx(0.3)
    assert difference([found], [expected], torch.float32, rounding=0.16) == pytest.approx(0.3)


def test_nan_is_a_difference_and_a_masked_token_is_none() -> None:
    expected = torch.zeros(100).index_fill(0, torch.tensor([3]), -torch.inf)
    assert difference([expected], [expected], torch.float32) is None
    for dtype in (torch.float32, torch.bfloat16):
        for found in (expected.index_fill(0, torch.tensor([7]), torch.nan), torch.zeros(100)):
            assert difference([found], [expected], dtype) is not None
        both = expected.index_fill(0, torch.tensor([7]), torch.nan)
        assert difference([both], [both], dtype) is not None


def test_rounding_of_the_models_own_pass_is_no_fault_of_the_engine(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own pass is off in float32, and exact in float64."""
    own = engine_proof.own_logprobs
    monkeypatch.setattr(
        engine_proof, "own_logprobs", lambda *given: (exact := own(*given)) + FAINT * (exact.dtype == torch.float32)
    )
    prove_engine(base, CONFIG, base)


def test_an_engine_that_is_off_by_little_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = engine_proof.own_logprobs
    monkeypatch.setattr(engine_proof, "own_logprobs", lambda *given: own(*given) + FAINT)
    with pytest.raises(AnotherFunction, match=r"the engine in this process differ by 0\.0003 nats"):
        prove_engine(base, CONFIG, base)


def test_no_part_of_a_pass_in_float64_is_rounded_to_float32() -> None:
    """Norms and rotary factors ask for float32 by name."""
    model = new_model(SIZES, 100, 0, 1, seed=0)
    widen(model)
    ids = torch.arange(50)[None]
    with torch.no_grad():
        once = model(input_ids=ids).logits
        with Float64Pass():
            passed = model(input_ids=ids).logits
            again = model(input_ids=ids.repeat(3, 1)).logits[2]
    assert passed.dtype == torch.float64
    assert 1e-10 < float((passed - once).abs().max()) < 1e-4
    assert float((passed[0] - again).abs().max()) < 1e-12


ROWS = {row.name: row for row in rows_of(PAGE.read_text(encoding="utf-8"))}


def test_the_page_has_a_row_for_each_architecture() -> None:
    assert list(ROWS) == list(ARCHITECTURES)
    assert sum("refused" not in row.learner + row.engine for row in ROWS.values()) >= 40


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_supported_as_the_page_says(name: str) -> None:
    assert examine(name, ARCHITECTURES[name]) == ROWS[name]
