"""LoRA's forward passes: of small models W + s BA is made once per pass, then the layer is one matrix product.

Peft's own forward adds two thin products, a scaling and a sum to every layer; with 0.3 M parameters on one core the
update runs at 16,000 tok/s with it and at 19,800 with folded weights (tests/benchmarks/learner.py). The price is one
gradient as large as W, which is why a large model keeps peft's. One of lower precision has products of its own dtype.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tasks.core.policies.lora_product import add_low_rank

if TYPE_CHECKING:
    from peft.tuners.lora import Linear as LoraLinear

Combine = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""(base layer, states [..., d_in], A [r, d_in], s B [d_out, r]) -> [..., d_out]"""


def fold_adapter(policy: nn.Module) -> None:
    """Make the LoRA layers of `policy` (if it has any) compute with folded weights. Idempotent."""
    for layer in _own_forward(policy):
        if layer.weight.dtype == _adapter_dtype(layer):
            layer.forward = _combined(layer, _folded)  # type: ignore[method-assign]


def narrow_adapter(policy: nn.Module) -> None:
    """Make LoRA layers over weights of lower precision multiply in it (`lora_product`). Idempotent."""
    for layer in _own_forward(policy):
        plain = type(layer.get_base_layer()) is nn.Linear
        if plain and layer.weight.dtype.itemsize < _adapter_dtype(layer).itemsize:
            layer.forward = _combined(layer, _narrow)  # type: ignore[method-assign]


def _own_forward(policy: nn.Module) -> "list[LoraLinear]":
    """The LoRA layers that still compute as peft has them."""
    from peft.tuners.lora import Linear as LoraLinear

    return [one for one in policy.modules() if isinstance(one, LoraLinear) and "forward" not in one.__dict__]


def _adapter_dtype(layer: "LoraLinear") -> torch.dtype:
    (name,) = layer.active_adapters
    weight: Any = layer.lora_A[name].weight
    dtype: torch.dtype = weight.dtype
    return dtype


def _combined(layer: "LoraLinear", combine: Combine) -> Any:
    """A forward pass of `layer` by `combine`; peft's own while the adapter is switched off or merged."""
    apart = layer.forward

    def forward(states: Tensor, *arguments: Any, **settings: Any) -> Tensor:
        """[..., d_in] -> [..., d_out]"""
        (name,) = layer.active_adapters
        if layer.disable_adapters or layer.merged:
            return apart(states, *arguments, **settings)
        down: Any = layer.lora_A[name].weight
        up: Any = layer.lora_B[name].weight
        return combine(layer.get_base_layer(), states, down, up * layer.scaling[name])

    return forward


def _folded(base: Any, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return linear(states, torch.addmm(base.weight, up, down), base.bias)


def _narrow(base: Any, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    output: Tensor = base(states)
    return add_low_rank(output, states, down.to(output.dtype), up.to(output.dtype))
