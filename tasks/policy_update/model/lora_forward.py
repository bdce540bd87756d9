"""LoRA's forward passes: of small models W + s BA is made once per pass, then the layer is one matrix product.

Peft's own forward adds two thin products, a scaling and a sum to every layer; with 0.3 M parameters on one core the
update runs at 16,000 tok/s with it and at 19,800 with folded weights (tests/benchmarks/learner.py). The price is one
gradient as large as W, which is why a large model keeps peft's. One of lower precision has products of its own dtype.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tasks.core.policies.lora_product import add_low_rank

if TYPE_CHECKING:
    from peft.tuners.lora import Linear as LoraLinear


_LOWER_PRECISION = (torch.bfloat16, torch.float16)


def fold_adapter(policy: nn.Module) -> None:
    """Make the LoRA layers of `policy` (if it has any) compute with folded weights. Idempotent."""
    for layer in _own_forward(policy):
        layer.forward = _folded(layer)  # type: ignore[method-assign]


def narrow_adapter(policy: nn.Module) -> None:
    """Make LoRA layers over weights of lower precision multiply in it (`lora_product`). Idempotent."""
    for layer in _own_forward(policy):
        if type(layer.get_base_layer()) is nn.Linear and layer.weight.dtype in _LOWER_PRECISION:
            layer.forward = _narrow(layer)  # type: ignore[method-assign]


def _own_forward(policy: nn.Module) -> "list[LoraLinear]":
    """The LoRA layers that still compute as peft has them."""
    from peft.tuners.lora import Linear as LoraLinear

    return [one for one in policy.modules() if isinstance(one, LoraLinear) and "forward" not in one.__dict__]


def _narrow(layer: "LoraLinear") -> Any:
    apart = layer.forward

    def forward(states: Tensor, *arguments: Any, **settings: Any) -> Tensor:
        """[..., d_in] -> [..., d_out]"""
        (name,) = layer.active_adapters
        if layer.disable_adapters or layer.merged:
            return apart(states, *arguments, **settings)
        base: Any = layer.get_base_layer()
        down: Any = layer.lora_A[name].weight
        up: Any = layer.lora_B[name].weight
        output: Tensor = base(states)
        return add_low_rank(output, states, down.to(output.dtype), (up * layer.scaling[name]).to(output.dtype))

    return forward


def _folded(layer: "LoraLinear") -> Any:
    apart = layer.forward

    def forward(states: Tensor, *arguments: Any, **settings: Any) -> Tensor:
        """[..., d_in] -> [..., d_out]"""
        (name,) = layer.active_adapters
        if layer.disable_adapters or layer.merged or layer.weight.dtype != layer.lora_A[name].weight.dtype:
            return apart(states, *arguments, **settings)
        base: Any = layer.get_base_layer()
        down: Any = layer.lora_A[name].weight
        up: Any = layer.lora_B[name].weight
        return linear(states, torch.addmm(base.weight, up * layer.scaling[name], down), base.bias)

    return forward
