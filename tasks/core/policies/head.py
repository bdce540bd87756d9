"""Logits from hidden states as the model's own forward pass computes them, including any scaling or capping.

The pass runs over a view of the model whose body returns the given states, so no list of architectures is needed.
"""

from typing import Any

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
