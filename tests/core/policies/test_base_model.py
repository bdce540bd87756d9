"""Checkpoints as base models: refused by what they are, and merged weights taken."""

import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from tasks.core.config.policy import PolicyConfig
from tasks.core.exports.model_folder import write_merged
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.records.files import ArtifactError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout with a base model and a checkpoint of each kind."""
    tokenizer = build_tokenizer(["print", "user\n", "assistant\n"], 64)
    model = new_model(TinyQwen2(width=32, heads=1, feed_forward=32, context_length=64), len(tokenizer), 0, 1, seed=0)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    for trained in ("lora", "full"):
        config = PolicyConfig(trained=trained, device="cpu")
        policy = trainable_policy(load_base_model(tmp_path / "base", config), config, None, seed=0)
        with torch.no_grad():
            for weight in policy.parameters():
                weight.add_(0.01)
        save_policy(policy, tmp_path / trained)
    return tmp_path


@pytest.mark.parametrize(
    ("checkpoint", "what"),
    [("lora", "the LoRA adapter of a base model alone"), ("full", "weights without a tokenizer")],
)
def test_a_checkpoint_is_refused_by_what_it_is(root: Path, checkpoint: str, what: str) -> None:
    (root / "fetched").mkdir()
    with pytest.raises(ArtifactError, match=f"policy.source: {checkpoint} is a checkpoint, {what}; docs/models"):
        fetch_base_model(PolicyConfig(source=checkpoint), "pocketworld", root, root / "fetched")
    assert not any((root / "fetched").iterdir())


def test_all_weights_beside_their_tokenizer_are_a_base_model(root: Path) -> None:
    for file in (root / "base").iterdir():
        if file.name.startswith(("tokenizer", "chat_template")):
            shutil.copy(file, root / "full")
    (root / "fetched").mkdir()
    config = PolicyConfig(source="full", device="cpu")
    fetch_base_model(config, "pocketworld", root, root / "fetched")
    model, trained = load_base_model(root / "fetched", config), load_base_model(root / "full", config)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), trained.parameters(), strict=True))


def test_merged_weights_as_export_writes_them_are_a_base_model(root: Path) -> None:
    merged = root / "trained"
    shutil.copytree(root / "base", merged, ignore=shutil.ignore_patterns("*.safetensors"))
    (root / "fetched").mkdir()
    config = PolicyConfig(source="trained", device="cpu")
    write_merged(PeftModel.from_pretrained(load_base_model(root / "base", config), str(root / "lora")), merged)
    fetch_base_model(config, "pocketworld", root, root / "fetched")
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = load_base_model(root / "fetched", config)(input_ids=ids).logits
        adapted = trainable_policy(load_base_model(root / "base", config), config, root / "lora", 0)
        torch.testing.assert_close(found, adapted(input_ids=ids).logits, rtol=1e-4, atol=1e-4)
