"""Layers of a model: what they keep of a sequence, what they need of attention, and what LoRA adds to them.

The learner's and the engine's attention are SDPA's, plus a sliding window. A layer that needs more (a soft cap of its
scores, attention sinks) gets the eager function of its own modelling file. An unknown keyword is an error: to drop it
would be to compute another model.
"""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

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


EagerAttention = Callable[..., tuple[Tensor, Tensor | None]]
"""(module, query, key, value, additive mask, **keywords) -> ([B, Q, H, D], weights), as in transformers' models."""
_NOT_ASKED = frozenset(
    (
        "dropout",
        "is_causal",
        "position_ids",
        "use_cache",
        "cache",
        "cache_position",
        "past_key_values",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
        "rollout_lengths",
        "rollouts_behind",
        "reading",
        "query_positions",
    )
)
"""Keywords without effect here: the policy runs without dropout, and we make the masks."""
_OWN = frozenset(("softcap", "s_aux"))


class Asked(NamedTuple):
    """Demands of a layer on its attention, beyond causality and a scale."""

    window: int | None = None
    """Each position sees itself and the `window` - 1 before it; None: all before it."""
    eager: EagerAttention | None = None
    """The model's own function, where SDPA cannot compute what the layer needs."""


PLAIN = Asked()


def read_keywords(module: nn.Module, keywords: Mapping[str, Any]) -> Asked:
    """Return what `keywords` demand of the attention of `module`. Raises ValueError for an unknown keyword."""
    if keywords.get("is_causal") is False:
        raise ValueError(f"{type(module).__name__}: its attention is not causal, which a policy's must be")
    asked = [name for name, value in keywords.items() if value is not None and name not in _NOT_ASKED]
    if not asked:
        return PLAIN
    unknown = sorted(set(asked) - _OWN - {"sliding_window"})
    if unknown:
        raise ValueError(
            f"{type(module).__name__}: its attention has the keyword {unknown[0]}, which learner and engine do not know"
        )
    return Asked(keywords.get("sliding_window"), _eager(module) if _OWN & set(asked) else None)


def _eager(module: nn.Module) -> EagerAttention:
    eager: EagerAttention | None = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise ValueError(f"{type(module).__name__}: its modelling file has no eager_attention_forward")
    return eager


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask that is added to scores: 0 where `visible`, else the least number of `dtype`."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)


def add_low_rank(output: Tensor, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Return output [..., out] + up (down states), rounded once; states: [..., in]; down: [r, in]; up: [out, r].

    The adapter is float32 (LOOP); its products have the output's dtype (float32 for the head's), with sums in float32,
    as under autocast and in vLLM. In float32 throughout, as in peft, each layer's input is copied in float32 for the
    backward pass, its output passes through memory four times more, and the thin products run at a fifth of the speed.
    """
    states, down, up = (factor.to(output.dtype) for factor in (states, down, up))
    reduced = states.flatten(0, -2) @ down.t()
    return torch.addmm(output.flatten(0, -2), reduced, up.t()).view_as(output)
