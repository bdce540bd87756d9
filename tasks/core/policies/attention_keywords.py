"""Keywords of transformers' attention interface, by which a layer states what it needs of attention.

The learner's and the engine's attention are SDPA's, plus a sliding window. A layer that needs more (a soft cap of its
scores, attention sinks) gets the eager function of its own modelling file. An unknown keyword is an error: to drop it
would be to compute another model.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

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
