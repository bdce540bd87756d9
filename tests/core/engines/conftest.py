import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from tasks.core.config.world import WorldSection
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tests.tiny_models import tiny_qwen2

VOCABULARY = 61


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    prepare_world_folder(WorldSection.of("pocketworld"), folder)
    world = open_world(WorldSection.of("pocketworld"), folder)
    yield world
    world.close()


def sharpened(model: PreTrainedModel) -> PreTrainedModel:
    """Fresh weights give nearly uniform tokens, whatever the context; larger ones make the cache matter."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(12 if weight.ndim > 1 else 1)
            if name.endswith("bias"):
                weight.normal_(std=0.5)
    return model.eval()


def _qwen2(context: int = 256, **changes: object) -> Qwen2ForCausalLM:
    """Grouped-query attention (4 heads, 2 of keys and values), tied embeddings, biases in the projections."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    more = {"max_position_embeddings": context, "tie_word_embeddings": True}
    return sharpened(tiny_qwen2(3, **{**sizes, **more, **changes}))


def _llama() -> LlamaForCausalLM:
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3
    )
    return sharpened(LlamaForCausalLM(config))


@pytest.fixture
def qwen2() -> Callable[..., Qwen2ForCausalLM]:
    return _qwen2


@pytest.fixture
def llama() -> Callable[[], LlamaForCausalLM]:
    return _llama


def lora_tensors(rank: int = 3) -> dict[str, Tensor]:
    """An adapter with B not zero on two projections of both layers."""
    generator = torch.Generator().manual_seed(5)
    tensors = {}
    for layer in (0, 1):
        for name, rows, columns in (("self_attn.q_proj", 32, 32), ("mlp.up_proj", 48, 32)):
            stem = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(rank, columns, generator=generator) * 0.3
            tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, rank, generator=generator) * 0.3
    return tensors


@pytest.fixture
def write_adapter(tmp_path: Path) -> Callable[..., Path]:
    def write(tensors: dict[str, Tensor] | None = None, **settings: object) -> Path:
        folder = tmp_path / f"adapter{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        save_file(lora_tensors() if tensors is None else tensors, folder / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "up_proj"], "bias": "none"}
        (folder / "adapter_config.json").write_text(json.dumps({**config, "task_type": "CAUSAL_LM", **settings}))
        return folder

    return write
