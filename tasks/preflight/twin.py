"""A twin of the base model, small and in float32, on which the proofs see what they cannot see on the model itself.

Rounding in bfloat16 hides a border that few tokens of a probe lie beyond, and a real border may be too far to reach.
The twin has the model's architecture and settings, random weights, every kind of its layers, and borders (sliding
window, chunk, original length of the rotary factors) so near that the probes lie on both sides of each.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tasks.core.config.engine import EngineSection
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.proofs import prove_passes
from tasks.core.policies.delivery_probe import COMMON_IDS
from tasks.core.policies.loading import is_lora, load_base_model, save_policy, trainable_policy, trained_tensors
from tasks.core.policies.positions import near_borders
from tasks.core.records.training import Passes
from tasks.preflight.engine_proof import prove_engine

_log = logging.getLogger(__name__)
Config = dict[str, Any]
"""The text part of a config.json."""
_HEADS, _FEED_FORWARD = 4, 128
_MOST = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "n_group"), 2),
    "topk_group": 1,
    "vocab_size": COMMON_IDS,
    "vocab_size_per_layer_input": COMMON_IDS,
}
"""The twin's numbers of experts and ids, where the model has more."""
_OWN_NUMBER = ("_idx", "_id", "_index", "_number")
"""Ends of the names under which a layer keeps its own number."""
_ADAPTER_STD = 0.05


class Twin(NamedTuple):
    """A small model like the base model, on disk."""

    base: Path
    config: PolicyConfig
    checkpoint: Path
    """Its adapter, not zero, or all of its weights."""

    def prove_engine(self, section: EngineSection) -> None:
        """Raise AnotherFunction if the engine in this process computes another function than the twin's own."""
        prove_engine(self.base, self.config, self.checkpoint, section)

    def prove_passes(self, fold_adapter: bool = True) -> Passes:
        """Return the fastest exact way of the learner's passes; raise AnotherFunction where none is exact."""
        update = UpdateConfig(fold_adapter=fold_adapter)
        policy = trainable_policy(load_base_model(self.base, self.config), self.config, self.checkpoint, seed=0)
        prepare_forward(policy, update, SINGLE)
        return prove_passes(policy, update)


def make_twin(base: Path, config: PolicyConfig, folder: Path) -> Twin | None:
    """Write the twin of the base model in `folder`; None, with a warning, where its config makes no smaller model."""
    whole = AutoConfig.from_pretrained(base, local_files_only=True).to_dict()
    refused = []
    for sizes in _candidates(whole):
        try:
            model = _random_model(AutoConfig.for_model(**sizes))
        except Exception as error:
            refused.append(str(error).strip().partition("\n")[0])
            continue
        return _written(model, config.model_copy(update={"dtype": "float32"}), folder)
    _log.warning("%s: no small twin of it can be made (%s)", whole.get("model_type"), "; ".join(refused))
    return None


def _candidates(whole: Config) -> Iterator[Config]:
    """Yield configs of a twin, the smallest first."""
    tower = {"vision_config": {**whole["vision_config"], "num_hidden_layers": 1}} if "vision_config" in whole else {}
    whole = {key: value for key, value in whole.items() if key != "quantization_config"} | tower
    nested = isinstance(whole.get("text_config"), Mapping)
    text = near_borders(whole["text_config"] if nested else whole)
    text |= {key: min(most, text[key]) for key, most in _MOST.items() if isinstance(text.get(key), int)}
    text |= dict.fromkeys(key for key in ("pad_token_id", "bos_token_id", "eos_token_id") if key in text)
    for narrow in (True, False):
        try:
            sizes = _narrow(text) if narrow else text
            placed = {**whole, "text_config": sizes} if nested else sizes
            fewer = _first_layers(sizes, _needed_layers(placed))
        except Exception as error:
            _log.debug("no twin with narrow=%s: %s", narrow, error)
            continue
        yield {**whole, "text_config": fewer} if nested else fewer
        yield placed


def _narrow(text: Config) -> Config:
    """Return the config with few heads of the same width, and with narrow feed-forward parts."""
    names = type(AutoConfig.for_model(text["model_type"])).attribute_map
    hidden, heads, groups = (
        names.get(name, name) for name in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    narrow = {
        key: min(value, _FEED_FORWARD)
        for key, value in text.items()
        if "intermediate_size" in key and isinstance(value, int)
    }
    if text.get(heads, 0) > _HEADS:
        width = text.get("head_dim") or text[hidden] // text[heads]
        narrow |= {heads: _HEADS, hidden: _HEADS * width}
        if shared := text.get(groups):
            narrow[groups] = _HEADS if shared == text[heads] else min(shared, _HEADS // 2)
    return {**text, **narrow}


def _needed_layers(sizes: Config) -> int:
    """Return how many of the first layers have every kind of layer among them."""
    with torch.device("meta"):
        model = _from_config(AutoConfig.for_model(**sizes))
    count = model.config.get_text_config().num_hidden_layers
    layers = next(part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == count)
    kinds = [_kind(layer) for layer in layers]
    return 1 + max(map(kinds.index, kinds))


def _kind(layer: nn.Module) -> tuple[Any, ...]:
    """Return what tells layers apart: their modules, the shapes of their weights, their settings."""
    shapes = tuple((name, tuple(weight.shape)) for name, weight in layer.named_parameters())
    settings = tuple(
        (name, type(module).__name__, key, value)
        for name, module in layer.named_modules()
        for key, value in sorted(vars(module).items())
        if isinstance(value, int | str | None) and not key.endswith(_OWN_NUMBER)
    )
    return shapes, settings


def _first_layers(text: Config, count: int) -> Config:
    """Return the config of the first `count` layers."""
    names = type(AutoConfig.for_model(text["model_type"])).attribute_map
    layers = names.get("num_hidden_layers", "num_hidden_layers")
    lists = {key: value for key, value in text.items() if isinstance(value, list)}
    cut = {key: value[:count] for key, value in lists.items() if len(value) == text.get(layers)}
    numbers = {
        key: [number for number in value if number < count]
        for key, value in lists.items()
        if key not in cut and key.endswith(("_layers", "_indices", "_idxs"))
    }
    return {**text, **cut, **numbers, layers: count}


def _from_config(config: Any) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    return model


@torch.no_grad()
def _random_model(config: Any) -> PreTrainedModel:
    """Return a model with random weights, the same at each call, that has passed some ids."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _from_config(config)
        for name, weight in model.named_parameters():  # fresh weights give nearly uniform tokens
            if weight.ndim > 1 and "A_log" not in name and "conv" not in name:
                weight.normal_(std=weight.shape[-1] ** -0.5)
    logits = model.train(False)(input_ids=torch.arange(32)[None], use_cache=False).logits
    if not logits.isfinite().all():
        raise ValueError("its logits are not finite")
    return model


def _written(model: PreTrainedModel, config: PolicyConfig, folder: Path) -> Twin:
    """Write the model as base model, and its trained part with an adapter that is not zero."""
    twin = Twin(folder / "base", config, folder / "policy")
    model.save_pretrained(twin.base)
    policy = trainable_policy(load_base_model(twin.base, config), config, None, seed=0)
    generator = torch.Generator().manual_seed(0)
    for tensor in trained_tensors(policy).values() if is_lora(policy) else ():
        tensor.data.add_((_ADAPTER_STD * torch.randn(tensor.shape, generator=generator)).to(tensor.device))
    save_policy(policy, twin.checkpoint)
    return twin
