"""Frames between processes: a 4-byte big-endian length and a JSON object, whose bytes may be hostile."""

import array
import json
import math
import os
import re
import socket
from collections.abc import Callable
from typing import Any

_MOST_DESCRIPTORS = 4
_read, _write = os.read, os.write
_dumps = json.JSONEncoder(allow_nan=False).encode  # json.dumps would build an encoder for every frame


class PeerGone(Exception):  # noqa: N818
    """The other end is closed."""


class OversizedMessage(Exception):  # noqa: N818
    """A frame is larger than its reader accepts."""


Wait = Callable[[], None]
"""Called whenever a descriptor's own time limit passes without progress; raises to give up."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message's frame. Raises TypeError, ValueError or RecursionError if it is not JSON."""
    payload = _dumps(message).encode("ascii")
    return len(payload).to_bytes(4, "big") + payload


def checked_size(header: bytes, most_bytes: int) -> int:
    """Return the length that an untrusted peer announced. Raises OversizedMessage."""
    size = int.from_bytes(header, "big")
    if size > most_bytes:
        raise OversizedMessage(f"a message of {size} bytes")
    return size


def send(descriptor: int, message: dict[str, Any], wait: Wait | None = None) -> None:
    """Write one frame. Raises PeerGone, and ValueError or TypeError if the message is not JSON."""
    rest = memoryview(encode(message))
    while rest:
        try:
            rest = rest[_write(descriptor, rest) :]
        except BlockingIOError:
            if wait is not None:
                wait()
        except (BrokenPipeError, ConnectionResetError):
            raise PeerGone from None


def receive(descriptor: int) -> dict[str, Any]:
    """Read one frame from a trusted peer. Raises PeerGone."""
    size = int.from_bytes(exactly(descriptor, 4), "big")
    message: dict[str, Any] = json.loads(exactly(descriptor, size))
    return message


def receive_hostile(descriptor: int, most_bytes: int, wait: Wait) -> dict[str, Any]:
    """Read one frame from an untrusted peer. Raises PeerGone, MalformedMessage and OversizedMessage."""
    size = checked_size(exactly(descriptor, 4, wait), most_bytes)
    return decode_hostile(exactly(descriptor, size, wait))


def exactly(descriptor: int, size: int, wait: Wait | None = None) -> bytes:
    """Read exactly `size` bytes. Raises PeerGone."""
    parts, left = [], size
    while left:
        try:
            part = _read(descriptor, min(left, 2**20))
        except BlockingIOError:
            if wait is not None:
                wait()
            continue
        except ConnectionResetError:
            part = b""
        if not part:
            raise PeerGone
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def receive_with_descriptors(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read one frame and the descriptors that came with its first byte. Raises PeerGone."""
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array.array("i").itemsize)
    header, ancillary, _, _ = control.recvmsg(4, room)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if not header:
        raise PeerGone
    header += exactly(control.fileno(), 4 - len(header))
    message: dict[str, Any] = json.loads(exactly(control.fileno(), int.from_bytes(header, "big")))
    return message, list(descriptors)


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
