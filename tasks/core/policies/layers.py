"""Layers of a model: do they keep only keys and values of a sequence, by our own attention functions?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_KEYS_AND_VALUES = frozenset(("full_attention", "sliding_attention"))


def foreign_layer(model: "PreTrainedModel") -> str | None:
    """Return what makes `model` more than attention over keys and values; None where nothing does.

    Such a model does not take another attention function, or has layers that keep a state, a part of the sequence or
    outputs of other layers.
    """
    from transformers.cache_utils import get_layer_types_and_kwargs

    if not takes_attention(model):
        return "attention of its own"
    if model._is_stateful:
        return "recurrent layers"
    config: Any = model.config.get_text_config(decoder=True)
    kinds, _ = get_layer_types_and_kwargs(config)
    return next((f"layers of type {kind}" for kind in kinds if kind not in _KEYS_AND_VALUES), None)


def takes_attention(model: "PreTrainedModel") -> bool:
    """Return whether transformers' interface can give attention functions to `model`."""
    return model._can_set_attn_implementation()


def use_own_attention(model: "PreTrainedModel") -> None:
    """Make `model` compute attention by the eager function of its own modelling file. Idempotent."""
    if takes_attention(model):
        model.set_attn_implementation("eager")
