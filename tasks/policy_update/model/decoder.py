"""The parts of a policy that sharding and activation checkpointing treat one by one."""

from typing import Any

from torch import nn


def decoder_layers(policy: nn.Module) -> list[nn.Module]:
    """The layers of a transformers decoder, with or without peft's wrapping."""
    model: Any = policy.get_base_model() if hasattr(policy, "get_base_model") else policy  # type: ignore[operator]
    return list(model.base_model.layers)
