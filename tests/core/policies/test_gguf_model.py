"""A tiny model, written as llama.cpp's converter writes it and read back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tasks.core.config.policy import PolicyConfig
from tasks.core.policies.architecture import CHAT_TEMPLATE, _byte_symbols
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.gguf_model import convert_gguf, convert_pinned
from tasks.core.policies.loading import load_base_model, load_tokenizer, untied_tensors
from tasks.core.records.files import ArtifactError, digest

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = ["he", "Ġ1"]
TOKENS = [*SPECIAL, *_byte_symbols(), *WORDS]
MERGES = ["h e", "Ġ 1"]
HEADS = {"q_proj": 2, "k_proj": 1}
Write = Callable[..., Path]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def write(model: LlamaForCausalLM, tmp_path: Path) -> Write:
    """Write the model as a GGUF file, its embedding as Q8_0; parts can be left out or changed."""

    def written(
        without: str = "",
        tokens: list[str] = TOKENS,
        merges: list[str] = MERGES,
        pre: str = "smollm",
        architecture: str = "llama",
        template: str | None = CHAT_TEMPLATE,
        layers: int = 2,
        of: Any = model,
    ) -> Path:
        path = tmp_path / "tiny.gguf"
        file = GGUFWriter(path, architecture)
        _write_settings(file, of.config, layers)
        _write_tokenizer(file, tokens, merges, pre)
        if template is not None:
            file.add_chat_template(template)
        for name, values in _tensors(of):
            if name != without:
                kind = gguf.GGMLQuantizationType.Q8_0 if name.startswith("token_embd") else None
                stored = values if kind is None else gguf.quantize(values, kind)
                file.add_tensor(name, stored, raw_dtype=kind)
        file.write_header_to_file()
        file.write_kv_data_to_file()
        file.write_tensors_to_file()
        file.close()
        return path

    return written


def _write_settings(file: GGUFWriter, config: Any, layers: int) -> None:
    file.add_name("tiny")
    file.add_license("apache-2.0")
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_freq_base(10_000.0)
    file.add_vocab_size(config.vocab_size)


def _write_tokenizer(file: GGUFWriter, tokens: list[str], merges: list[str], pre: str) -> None:
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre(pre)
    file.add_token_list(tokens)
    file.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    file.add_token_merges(merges)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    file.add_pad_token_id(2)


def _tensors(model: Any) -> list[tuple[str, np.ndarray]]:
    names, found = (
        gguf.get_tensor_name_map(gguf.MODEL_ARCH[model.config.model_type.upper()], model.config.num_hidden_layers),
        [],
    )
    for name, tensor in untied_tensors(model).items():
        values, heads = tensor.detach().numpy(), HEADS.get(name.split(".")[-2])
        if (
            heads and model.config.model_type == "llama"
        ):  # as llama.cpp's convert_hf_to_gguf.py: pairs of rotary components side by side
            halves = values.reshape(heads, 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        found.append((names.get_name(name, (".weight", ".bias")) or name, values))
    return found


def test_the_model_computes_as_the_one_that_was_written(write: Write, model: LlamaForCausalLM, tmp_path: Path) -> None:
    convert_gguf(write(), tmp_path / "base", "nowhere")
    found, ids = load_base_model(tmp_path / "base", PolicyConfig(device="cpu")), torch.arange(20)[None]
    embedding = model.model.embed_tokens.weight.detach().numpy()
    rounded = gguf.dequantize(gguf.quantize(embedding, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
    original = model.model.embed_tokens.weight.data.clone()
    model.model.embed_tokens.weight.data.copy_(torch.from_numpy(rounded))
    with torch.no_grad():
        assert (found(ids).logits - model(ids).logits).abs().max() < 1e-4
    model.model.embed_tokens.weight.data.copy_(original)


def test_a_qwen2_file_brings_biases_and_a_head_of_its_own(write: Write, tmp_path: Path) -> None:
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    written = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(TOKENS), **sizes, **heads, tie_word_embeddings=False))
    written.model.layers[1].self_attn.q_proj.bias.data.normal_()
    convert_gguf(write(of=written, architecture="qwen2", pre="qwen2"), tmp_path / "base", "nowhere")
    found = load_base_model(tmp_path / "base", PolicyConfig(device="cpu")).state_dict()
    for name, values in untied_tensors(written).items():
        assert "embed_tokens" in name or torch.equal(found[name], values), name
    assert not torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])


def test_a_file_is_held_against_its_sha256(write: Write, tmp_path: Path) -> None:
    path = write()
    with pytest.raises(ArtifactError, match=rf"tiny.gguf has the SHA-256 {digest(path)}, not 000"):
        convert_pinned(path, "0" * 64, tmp_path / "base", "a file")
    convert_pinned(path, digest(path), tmp_path / "base", "a file")
    assert (tmp_path / "base" / "model.safetensors").exists()


def test_the_tokenizer_splits_digits_and_ends_turns_and_texts(write: Write, tmp_path: Path) -> None:
    convert_gguf(write(), tmp_path / "base", "nowhere")
    tokenizer, chat = load_tokenizer(tmp_path / "base"), load_chat_format(tmp_path / "base")
    text = "he  112 in Zürich"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(ids)[:6] == ["he", "Ġ", "Ġ", "1", "1", "2"]
    assert chat.stop_ids[:2] == (2, 0)
    card = (tmp_path / "base" / "README.md").read_text()
    assert "From: nowhere, file tiny.gguf, SHA-256 " in card and "Licence: apache-2.0" in card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"without": "blk.1.ffn_up.weight"}, r"tensor of model\.layers\.1\.mlp\.up_proj\.weight is missing"),
        ({"layers": 1}, r"tensor blk\.1\.attn_k\.weight: the model has no place for it"),
        ({"tokens": TOKENS[:-1]}, r"transformers cannot read it: .*Token `Ġ1` out of vocabulary"),
        ({"tokens": [*TOKENS, "more"]}, r"262 tokens, llama\.vocab_size 261"),
        ({"merges": ["h e", "h e", "Ġ 1"]}, r"merges byte pairs otherwise than tokenizer\.ggml\.merges"),
        ({"template": None}, r"tokenizer\.chat_template is missing"),
        ({"pre": "unheard-of"}, r"tokenizer\.ggml\.pre is unheard-of"),
        ({"architecture": "mamba"}, r"general\.architecture is mamba; only llama and qwen2"),
    ],
)
def test_a_file_that_does_not_match_is_one_error(
    write: Write, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArtifactError, match=message):
        convert_gguf(write(**change), tmp_path / "base", "nowhere")
    assert not (tmp_path / "base").exists()


def test_a_damaged_file_is_one_error(write: Write, tmp_path: Path) -> None:
    path = write()
    for content in (b"no GGUF at all", path.read_bytes()[:200], path.read_bytes()[:-5000]):
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"tiny\.gguf: no GGUF file, or a damaged one"):
            convert_gguf(path, tmp_path / "base", "nowhere")
