"""The ways in which rollouts go through a policy's body: packed side by side, or one to a pass.

A pack is exact where only attention joins positions, and attention knows nothing of them except their order. Other
models (recurrent layers, convolutions, ALiBi, rotary factors by length) take one rollout to a pass: then their forward
pass is their own, whatever it does. `passes_proof` proves which way is exact.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from tasks.core.learner.model import use_packed_attention, use_single_attention
from tasks.core.policies.layers import foreign_layer, takes_attention, use_own_attention
from tasks.core.policies.positions import fixed_positions, rotary_by_length
from tasks.core.records.training import Passes

WAYS: tuple[Passes, ...] = ("packed", "single", "single_eager")
"""From the fastest to the slowest."""
_ATTENTION: dict[Passes, Callable[[Any], None]] = {
    "packed": use_packed_attention,
    "single": use_single_attention,
    "single_eager": use_own_attention,
}
_WAY = "rollouts_per_pass"
_LONGEST = "longest_rollout"


def language_model(policy: nn.Module) -> Any:
    """Return the transformers model of `policy`, with or without peft's wrapping."""
    return policy.get_base_model() if hasattr(policy, "get_base_model") else policy  # type: ignore[operator]


def use_passes(policy: nn.Module, way: Passes | None) -> None:
    """Make the forward passes of `policy` go this `way`; None: the way that its layers suggest. Idempotent."""
    model = language_model(policy)
    chosen = suggested(policy) if way is None else way
    _ATTENTION[chosen](model)
    vars(model)[_WAY] = chosen
    text = model.config.get_text_config().to_dict()
    vars(model)[_LONGEST] = None if rotary_by_length(text) else fixed_positions(text)


def suggested(policy: nn.Module) -> Passes:
    """Return the fastest way that the layers of `policy` allow, judged by its config."""
    model = language_model(policy)
    if not takes_attention(model):
        return "single_eager"
    by_length = rotary_by_length(model.config.get_text_config().to_dict())
    return "single" if by_length or foreign_layer(model) else "packed"


def is_packed(policy: nn.Module) -> bool:
    """Return whether rollouts share forward passes."""
    way: Passes = vars(language_model(policy)).get(_WAY, "packed")
    return way == "packed"


def pack_capacity(policy: nn.Module, tokens_per_pack: int) -> int:
    """Return the positions of a pack, or 1, which gives packs of one rollout or pair, where passes are not shared."""
    return tokens_per_pack if is_packed(policy) else 1


def known_positions(model: Any) -> int | None:
    """Return the length of a rollout beyond which rotary factors would depend on it; None: there is no limit."""
    longest: int | None = vars(model).get(_LONGEST)
    return longest
