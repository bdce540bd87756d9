"""The pipeline's end of a socket to a process."""

import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from tasks.core.confinement.inside.frames import checked_size, encode
from tasks.core.confinement.inside.hostile_json import decode_hostile


class LinkBroken(Exception):  # noqa: N818
    """The process at the other end is gone or does not answer."""


class LinkTimeout(LinkBroken):
    """The process at the other end did not answer in time."""


Patience = Callable[[], float]
"""Returns the seconds to wait for the next bytes; called again when they have passed, and raises to give up."""


class Link:
    """JSON frames over a socket, one direction at a time. Not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = (), seconds: float = 30.0) -> None:
        """Send one message. Raises LinkBroken."""
        self.send_frame(encode(message), descriptors, seconds)

    def send_frame(self, frame: bytes, descriptors: Sequence[int] = (), seconds: float = 30.0) -> None:
        """Send a frame unchanged. Raises LinkBroken."""
        try:
            self._end.settimeout(seconds)
            sent = socket.send_fds(self._end, [frame], list(descriptors)) if descriptors else 0
            self._end.sendall(frame[sent:])
        except TimeoutError as error:
            raise LinkTimeout(f"accepted no message for {seconds:g} s") from error
        except OSError as error:
            raise LinkBroken(f"is gone ({error})") from error

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message. Raises LinkBroken; LinkTimeout if it is incomplete after `seconds`."""
        message: dict[str, Any] = json.loads(self.receive_frame(seconds)[4:])
        return message

    def receive_frame(self, seconds: float) -> bytes:
        """Return the next message with its length prefix, to be passed on unread."""
        patience = _until(time.monotonic() + seconds, seconds)
        header = self._exactly(4, patience)
        return header + self._exactly(int.from_bytes(header, "big"), patience)

    def receive_hostile(self, most_bytes: int, patience: Patience) -> dict[str, Any]:
        """Return the next message of an untrusted peer. Raises LinkBroken, MalformedMessage, OversizedMessage."""
        size = checked_size(self._exactly(4, patience), most_bytes)
        return decode_hostile(self._exactly(size, patience))

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived unasked, not even the end of the connection."""
        return not select.select([self._end], [], [], 0)[0]

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._end.close()

    def _exactly(self, size: int, patience: Patience) -> bytes:
        parts, left = [], size
        while left:
            try:
                self._end.settimeout(patience())
                part = self._end.recv(min(left, 2**20))
            except TimeoutError:
                continue
            except OSError as error:
                raise LinkBroken(f"is gone ({error})") from error
            if not part:
                raise LinkBroken("is gone")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _until(end: float, seconds: float) -> Patience:
    def left() -> float:
        rest = end - time.monotonic()
        if rest <= 0:
            raise LinkTimeout(f"did not answer in {seconds:g} s")
        return rest

    return left
