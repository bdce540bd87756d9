"""Float32 logits from an LM head of lower precision, for both the learner and this process's engine.

A bfloat16 head rounds a logit of 20 to a multiple of 0.125, more than the clip range of an importance weight (1.1 is a
log-ratio of 0.095). Products of bfloat16 numbers are exact in float32, and every matrix product keeps their sums in
float32 anyway: this module only omits the last rounding. Weights and states stay as they are, and so do the gradients,
which are computed in the head's dtype.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_CPU_NUMBERS, _CPU_ROWS = 2**19, 512
"""Numbers of the head that have a float32 copy at one time, and the least number of rows in such a copy. Malloc keeps
a block of 2 MiB, and the core's caches hold it: blocks of 19 MiB, requested from the system anew, take three times as
long.
"""


def use_float32_logits(model: nn.Module) -> None:
    """Make a transformers model's head return float32 logits.

    Idempotent; leaves a float32 or quantised head as it is.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    widen_head(head.get_base_layer() if hasattr(head, "get_base_layer") else head)


def widen_head(head: nn.Module) -> None:
    """The same for a head by itself: [..., d] in its dtype -> [..., V] float32."""
    if type(head) is nn.Linear and head.weight.dtype.itemsize < 4 and "forward" not in head.__dict__:
        head.forward = partial(_float32_logits, head)  # type: ignore[method-assign]


def _float32_logits(head: nn.Linear, states: Tensor) -> Tensor:
    """Map [..., d] to [..., V] float32."""
    logits: Tensor = _Product.apply(states.flatten(0, -2), head.weight)  # type: ignore[no-untyped-call]
    if head.bias is not None:
        logits = logits + head.bias.float()
    return logits.view(*states.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """The product of states [P, d] and weight [V, d]^T, both of the same lower precision, as [P, V] float32."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _product(states, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        states, weight = ctx.saved_tensors
        wanted, rounded = ctx.needs_input_grad, gradient.to(weight.dtype)
        return rounded @ weight if wanted[0] else None, rounded.t() @ states if wanted[1] else None


def _product(states: Tensor, weight: Tensor) -> Tensor:
    if states.is_cuda:
        return torch.mm(states, weight.t(), out_dtype=torch.float32)  # type: ignore[call-overload, no-any-return]
    logits, wide = torch.empty(len(states), len(weight), device=states.device), states.float()
    count = max(_CPU_ROWS, _CPU_NUMBERS // weight.shape[1])
    for columns, rows in zip(torch.split(logits, count, 1), torch.split(weight, count), strict=True):
        torch.mm(wide, rows.float().t(), out=columns)
    return logits
