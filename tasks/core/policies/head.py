"""The head of a model: logits from hidden states, and float32 logits where the head has lower precision.

Logits are those of the model's own forward pass, including any scaling or capping: it runs over a view of the model
whose body returns the given states, so no list of architectures is needed.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class _States:
    """A body that has computed already; the real body answers whatever else a head asks for."""

    def __init__(self, body: nn.Module, states: Tensor) -> None:
        self._body = body
        self._output = _Output(states)

    def __call__(self, *_: Any, **__: Any) -> "_Output":
        return self._output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


class _Output:
    """A body's output: the last hidden states under their name and as the first element; all else is None."""

    def __init__(self, states: Tensor) -> None:
        self.last_hidden_state = states

    def __getitem__(self, place: Any) -> Any:
        return (self.last_hidden_state,)[place]

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def logits_of(model: nn.Module, states: Tensor) -> Tensor:
    """Return the logits [P, V] that a transformers `model` computes from its body's last hidden `states` [P, d].

    Raises ValueError for a model whose body is not a part of it under its own name, or not what its head calls.
    """
    view: Any = object.__new__(type(model))  # a sharded model's class constructs objects of another class
    view.__dict__.update(model.__dict__)
    name = body_name(model)
    view._modules = {**model._modules, name: _States(model.get_submodule(name), states[None])}
    try:
        logits: Tensor = type(model).forward(view).logits
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{type(model).__name__}: its head takes no hidden states from its body {name!r}; policy.source: this "
            "architecture is not supported"
        ) from error
    return logits[0]


def body_name(model: nn.Module) -> str:
    """Return the name of a language model's part that outputs hidden states. Raises ValueError without such a part."""
    name: Any = getattr(model, "base_model_prefix", "")
    if name in model._modules:
        return str(name)
    bodies = [name for name, part in model.named_children() if hasattr(part, "get_input_embeddings")]
    if len(bodies) != 1:
        raise ValueError(f"{type(model).__name__}: no single part of it is its body, apart from its head")
    return bodies[0]


def body_of(model: nn.Module) -> nn.Module:
    """Return the part of a language model that outputs hidden states. Raises ValueError without such a part."""
    return model.get_submodule(body_name(model))


_CPU_NUMBERS, _CPU_ROWS = 2**19, 512
"""Numbers of the head that have a float32 copy at one time, and the least number of rows in such a copy. Malloc keeps
a block of 2 MiB, and the core's caches hold it: blocks of 19 MiB, requested from the system anew, take three times as
long.
"""


def use_float32_logits(model: nn.Module) -> None:
    """Make a transformers model's head return float32 logits, in the learner and in this process's engine.

    Idempotent; leaves a float32 or quantised head as it is. A bfloat16 head rounds a logit of 20 to a multiple of
    0.125, more than the clip range of an importance weight (1.1 is a log-ratio of 0.095). Products of bfloat16 numbers
    are exact in float32, and every matrix product keeps their sums in float32 anyway: only the last rounding is
    omitted. Weights, states and gradients keep the head's dtype.
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
