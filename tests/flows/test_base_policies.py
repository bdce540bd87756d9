"""LOOP on base policies of other architectures than the embedded policy's, from preflight to the update."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

from flows.cli.app import main
from flows.dag.stages import STAGES
from flows.runners.plain_runner import PlainRunner
from tasks.core.config.params import load_params
from tasks.core.interfaces.stage import ProcessCache
from tasks.core.records.documents import read_document
from tasks.core.records.layout import Layout
from tasks.core.records.training import Metrics, Preflight
from tests.flows.tiny_project import ROOT

UNTIL_UPDATED = [stage.name for stage in STAGES].index("update_policy") + 1
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
}
DELTA: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"],
}
CAPS = {"sliding_window": 64, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 2.0}


def gemma2(**ids: Any) -> PreTrainedModel:
    return Gemma2ForCausalLM(Gemma2Config(**SIZES, **CAPS, query_pre_attn_scalar=16, **ids))


def qwen35(**ids: Any) -> PreTrainedModel:
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SIZES, **DELTA, **ids))


def write_base(make: Callable[..., PreTrainedModel], folder: Path) -> None:
    """Write a base policy with the embedded tokenizer and random weights that make its tokens matter."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "data/base_policies/pocket")
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    model = make(vocab_size=len(tokenizer), **ids)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "conv" not in name:
                weight.normal_(std=0.15)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def learn(root: Path, profile: str, *settings: str) -> Layout:
    """Run the stages of one iteration with the base policy in `root`/base, up to its update."""
    assert (
        main(
            [
                "configure",
                profile,
                *(f"--set={setting}" for setting in ("policy.source=base", "iterations=1", *settings)),
            ]
        )
        == 0
    )
    params, cache = load_params(root / "params.yaml"), ProcessCache()
    runner = PlainRunner(root, cache)
    for stage in STAGES[:UNTIL_UPDATED]:
        for key in stage.keys(params)[:1]:
            runner.run(stage.name, key)
    cache.close()
    return Layout(root)


@pytest.mark.parametrize("make, passes", [(gemma2, "packed"), (qwen35, "single")])
def test_the_engine_samples_what_the_learner_trains(
    make: Callable[..., PreTrainedModel], passes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_base(make, tmp_path / "base")
    targets = "policy.lora.targets=[q_proj, o_proj, down_proj]"
    turns = ("collection.limits.max_turns=2", "collection.limits.max_tokens_per_turn=16")
    layout = learn(tmp_path, "drill", targets, *turns, "advantages.min_absolute_advantage=0")
    assert read_document(layout.preflight, Preflight).passes == passes
    metrics = read_document(layout.metrics("i001"), Metrics)
    assert metrics.engine_mismatch is not None and metrics.engine_mismatch.max < 1e-4
