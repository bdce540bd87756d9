"""The parts of a policy that sharding and activation checkpointing treat one by one."""

from typing import Any

from torch import nn


def decoder_layers(policy: nn.Module) -> list[nn.Module]:
    """The layers of a transformers decoder, with or without peft's wrapping.

    Raises ValueError for a model whose text part has no list of layers.
    """
    model: Any = policy.get_base_model() if hasattr(policy, "get_base_model") else policy  # type: ignore[operator]
    text = model.get_decoder()
    layers: list[nn.Module] = []
    for part in text.children():
        if isinstance(part, nn.ModuleList) and len(part) > len(layers):
            layers = list(part)
    if not layers:
        raise ValueError(f"{type(model).__name__}: no list of decoder layers to shard or to checkpoint one by one")
    return layers
