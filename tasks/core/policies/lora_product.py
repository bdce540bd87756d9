"""The adapter's product in a LoRA layer over weights of lower precision, as learner and engine both compute it.

The adapter is float32 (LOOP); its products have the weights' dtype, with sums in float32, as under autocast and in
vLLM. In float32 throughout, as in peft, each layer's input is copied in float32 for the backward pass, its output
passes through memory four times more, and the thin products run at a fifth of the speed or less.
"""

import torch
from torch import Tensor


def add_low_rank(output: Tensor, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Return output [..., out] + up (down states), rounded once.

    The products have the output's dtype, which is the weights' own, or float32 where that of a head is
    (`float32_logits`). states: [..., in]; down: [r, in]; up: [out, r].
    """
    states, down, up = (factor.to(output.dtype) for factor in (states, down, up))
    reduced = states.flatten(0, -2) @ down.t()
    return torch.addmm(output.flatten(0, -2), reduced, up.t()).view_as(output)
