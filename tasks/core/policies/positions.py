"""Positions of a model, read from its config: how many a conversation may have, and where rotary factors change."""

from collections.abc import Iterator, Mapping
from typing import Any

_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len")
LIMIT = "model_max_length"
"""Key of config.json for a shorter context where `max_position_embeddings` scales something; vLLM reads it too."""
_PLAIN_ROTARY = ("default", "linear", "llama3", "proportional")
"""Rotary types whose factors do not depend on `max_position_embeddings`."""
_WINDOWS = ("sliding_window", "attention_chunk_size", "attention_window_size")
_SHORT = (19, 45, 100)
"""Lengths longer than the chunks in which recurrent layers compute, and shorter."""
LONGEST_PROBE = 8200
_NEAR_WINDOW, _NEAR_CHUNK, _NEAR_ORIGINAL = 24, 16, 64
_CHUNKS = ("chunk_size", "mamba_chunk_size", "block_size")
"""Names of the lengths in which recurrent layers compute."""
_SCALED_FROM = "floor_scale"
"""Position from which on Llama 4 scales queries."""
_ORIGINAL = "original_max_position_embeddings"
_BY_LENGTH = ("dynamic", "longrope")
"""Rotary types whose factors depend on the length of the sequence."""


def context_length(config: Mapping[str, Any]) -> int:
    """Return the positions that a conversation may have, from the config of a model's text part.

    Raises ValueError for a config that does not give them, as those of models without positions may.
    """
    if not names_context(config):
        raise ValueError(f"a {config.get('model_type')} model names no longest context: set policy.context_length")
    return min(int(config[name]) for name in (*_NAMES, LIMIT) if config.get(name) is not None)


def names_context(config: Mapping[str, Any]) -> bool:
    """Return whether a config gives the positions of a conversation; models without positions need not give them."""
    return any(config.get(name) is not None for name in (*_NAMES, LIMIT))


def limited_context(config: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return the config with a context of `length`. Leave a number as it is that rotary factors are computed from."""
    plain = "max_position_embeddings" in config and all(kind in _PLAIN_ROTARY for kind, _ in _rotary_types(config))
    return {**config, "max_position_embeddings" if plain else LIMIT: length}


def fixed_positions(config: Mapping[str, Any]) -> int | None:
    """Return the length up to which rotary factors are the same for all sequences; None: at every length."""
    limits = [_original(config, kind, settings) for kind, settings in _rotary_types(config) if kind in _BY_LENGTH]
    return min(limits, default=None)


def rotary_by_length(config: Mapping[str, Any]) -> bool:
    """Return whether some sequence of the context has other rotary factors than a shorter one."""
    fixed = fixed_positions(config)
    return fixed is not None and context_length(config) > fixed


def probe_lengths(config: Mapping[str, Any]) -> list[int]:
    """Return the lengths of sequences on which a model's passes are compared.

    These are some different short lengths, and one length on either side of each window or chunk that the config names.
    A window beyond LONGEST_PROBE positions is not crossed: the scores of a whole pass would not fit a device.
    """
    named = [config.get(name) for name in _WINDOWS if config.get("use_sliding_window", True)]
    borders = sorted({int(border) for border in named if border})
    lengths = [*_SHORT, *(length for border in borders for length in (border - 5, border + 13))]
    longest = min(context_length(config), LONGEST_PROBE)
    return sorted({max(2, min(length, longest)) for length in lengths if length <= longest or length in _SHORT})


def near_borders(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with every border so near that `probe_lengths` lie on both sides of it.

    Borders are windows, chunks, and the original length of rotary factors. Where rotary factors depend on the length
    of a sequence, the context crosses that length if it did before.
    """
    most = {
        **dict.fromkeys((*_WINDOWS, _SCALED_FROM), _NEAR_WINDOW),
        **dict.fromkeys(_CHUNKS, _NEAR_CHUNK),
        _ORIGINAL: _NEAR_ORIGINAL,
    }
    near: dict[str, Any] = {}
    for key, value in config.items():
        inner: Any = near_borders(value) if isinstance(value, Mapping) else value
        near[key] = min(inner, most[key]) if key in most and inner else inner
    if _ORIGINAL in str(config) and names_context(config):
        near["max_position_embeddings"] = 4 * _NEAR_ORIGINAL
        near.pop(LIMIT, None)
        if fixed_positions(config) is not None and not rotary_by_length(config):
            near[LIMIT] = fixed_positions(near)
    return near


def require_fixed_rotary(config: Mapping[str, Any], model: str) -> None:
    """Raise ValueError for a `model` whose rotary factors change for longer conversations.

    The distribution of a token would then depend on how much follows it. vLLM uses the factors of the longest context
    for all conversations; transformers' own generation starts over where they change.
    """
    if rotary_by_length(config):
        fixed = fixed_positions(config)
        raise ValueError(
            f"{model}: its rotary factors change at {fixed} positions, so no engine samples by those of a whole "
            f"rollout: policy.context_length must be at most {fixed}"
        )


def _original(config: Mapping[str, Any], kind: str, settings: Mapping[str, Any]) -> int:
    """Return the model's pretraining length; for the dynamic type it is the model's own length."""
    sections = [] if kind == "dynamic" else [config, settings]
    known = [section[_ORIGINAL] for section in sections if section.get(_ORIGINAL)]
    return int(known[0] if known else config["max_position_embeddings"])


def _rotary_types(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (type, settings) of each rotary embedding; some models have one for each type of layer."""
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    nested = [value for value in rotary.values() if isinstance(value, Mapping)]
    for settings in nested or [rotary]:
        yield str(settings.get("rope_type") or settings.get("type") or "default"), settings
