"""Decoding JSON from a process that runs an agent's code. Treats every byte as hostile."""

import json
import math
import re
from typing import Any

MAX_DEPTH = 64
"""Deepest nesting of an API call's arguments, so that worlds can copy and compare them safely."""


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


class MalformedMessage(Exception):  # noqa: N818
    """The bytes are not a message of the protocol."""


def decode_hostile(payload: bytes) -> dict[str, Any]:
    """Decode a JSON object with finite numbers, valid Unicode and at most MAX_DEPTH levels. Raises MalformedMessage."""
    try:
        text = payload.decode("utf-8")
        if _depth(text) > MAX_DEPTH:
            raise MalformedMessage("nested too deep")
        message = _loads(text)
        if "\\u" in text:  # an escape may encode half a surrogate pair, which UTF-8 cannot hold
            json.dumps(message, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(str(error)) from error
    if not isinstance(message, dict):
        raise MalformedMessage("not an object")
    return message


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is out of range")
    return value


_loads = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


def _depth(text: str) -> int:
    """Return the nesting depth of `text`; 0 if all its brackets, strings included, are too few to exceed MAX_DEPTH."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
