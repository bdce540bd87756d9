"""A model's own forward pass in float64 throughout, for where float32 leaves open whether two computations differ.

Models compute some of their parts in float32 whatever their weights are, which would round as before: what asks for
float32 gets float64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tasks.core.learner.passes import language_model


class Float64Pass(TorchFunctionMode):
    """Where it is entered, torch's functions take float64 for float32 as a dtype."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func` with float64 for each float32 among its arguments."""
        func = Tensor.double if func is Tensor.float else func
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def widen(policy: nn.Module) -> None:
    """Give `policy` float64 weights, and its experts a product that takes them."""
    policy.double()
    model = language_model(policy)
    if model._can_set_experts_implementation():  # grouped products know no float64
        model.set_experts_implementation("eager")


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
