"""The only descriptor of a process that runs an agent's code."""

import builtins
import json
import os
from typing import Any, NoReturn

# Functions look up built-in names in their module's __builtins__. A private copy ensures that an agent's
# `builtins.len = None` breaks only the agent's code, not the protocol.
globals()["__builtins__"] = dict(vars(builtins))

# json's C functions, for the same reason: agents' code can break the Python layer above them.
_make_encoder: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_quote: Any = json.encoder.encode_basestring  # type: ignore[attr-defined]
_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_read, _write, _exit = os.read, os.write, os._exit


class Channel:
    """JSON messages over the process's only open descriptor."""

    def __init__(self, descriptor: int, request_bytes: int) -> None:
        self._descriptor = descriptor
        self._request_bytes = request_bytes

    def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        If it is not JSON or too large, sends nothing and raises TypeError, ValueError or RecursionError.
        """
        payload = _encode(message)
        if len(payload) > self._request_bytes:
            raise ValueError("too much data in one call")
        rest = memoryview(len(payload).to_bytes(4, "big") + payload)
        while rest:
            rest = rest[_write(self._descriptor, rest) :]

    def receive(self) -> dict[str, Any]:
        """Return the next message. When the channel closes, the process exits."""
        message: dict[str, Any] = _scan(str(self._exactly(int.from_bytes(self._exactly(4), "big")), "ascii"), 0)[0]
        return message

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = _read(self._descriptor, size - len(data))
            if not more:
                _exit(0)
            data = data + more if data else more
        return data


def _encode(message: dict[str, Any]) -> bytes:
    encoder = _make_encoder({}, _refuse, _quote, None, ":", ",", False, False, False)
    return "".join(encoder(message, 0)).encode("utf-8")


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"{type(value).__name__} is no JSON value")
