"""Nested documents by dotted names: {"a": {"b": 1}} as {"a.b": 1}."""

import json
from collections.abc import Mapping
from typing import Any


def dotted(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Everything in `content` that is no mapping, by its dotted name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            found.update(dotted(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = value
    return found


def dotted_text(content: Mapping[str, Any]) -> dict[str, str]:
    """Everything in `content` by its dotted name, as text: what is no text already, as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in dotted(content).items()}


def dotted_numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `content` by their dotted names; truth values and everything else left out."""
    return {
        name: float(value)
        for name, value in dotted(content).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
