"""Nested documents as flat ones with dotted names: {"a": {"b": 1}} as {"a.b": 1}."""

import json
from collections.abc import Mapping
from typing import Any


def dotted(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every value in `content` that is not a mapping, by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat.update(dotted(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def dotted_text(content: Mapping[str, Any]) -> dict[str, str]:
    """Return every value in `content` by dotted name, as text; values that are not text as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in dotted(content).items()}


def dotted_numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in `content` by dotted name; leaves out booleans and everything else."""
    return {
        name: float(value)
        for name, value in dotted(content).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
