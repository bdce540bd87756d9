"""The pipeline's end of a socket to one of the engine's processes."""

import json
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from tasks.core.worlds.sandbox.wire import encode_message


class LinkBroken(Exception):  # noqa: N818
    """The process at the other end is gone, or does not answer."""


class LinkTimeout(LinkBroken):
    """It did not answer in time."""


class Link:
    """Frames of JSON, each way in turn. Not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = (), seconds: float = 30.0) -> None:
        """Send one message. Raises LinkBroken."""
        self.send_frame(encode_message(message), descriptors, seconds)

    def send_frame(self, frame: bytes, descriptors: Sequence[int] = (), seconds: float = 30.0) -> None:
        """Send a frame as it is. Raises LinkBroken."""
        try:
            self._end.settimeout(seconds)
            sent = socket.send_fds(self._end, [frame], list(descriptors)) if descriptors else 0
            self._end.sendall(frame[sent:])
        except TimeoutError as error:
            raise LinkTimeout(f"took no message for {seconds:g} s") from error
        except OSError as error:
            raise LinkBroken(f"is gone ({error})") from error

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message. Raises LinkBroken; LinkTimeout when it is not whole after `seconds`."""
        message: dict[str, Any] = json.loads(self.receive_frame(seconds)[4:])
        return message

    def receive_frame(self, seconds: float) -> bytes:
        """The next message with its length before it, to be passed on unread."""
        end = time.monotonic() + seconds
        header = self._exactly(4, end, seconds)
        return header + self._exactly(int.from_bytes(header, "big"), end, seconds)

    @property
    def quiet(self) -> bool:
        """Nothing has come that nobody asked for, not even the end."""
        return not select.select([self._end], [], [], 0)[0]

    def close(self) -> None:
        """Hang up. Idempotent."""
        self._end.close()

    def _exactly(self, size: int, end: float, seconds: float) -> bytes:
        parts, left = [], size
        while left:
            try:
                self._end.settimeout(max(end - time.monotonic(), 0.001))
                part = self._end.recv(min(left, 2**20))
            except TimeoutError as error:
                raise LinkTimeout(f"did not answer in {seconds:g} s") from error
            except OSError as error:
                raise LinkBroken(f"is gone ({error})") from error
            if not part:
                raise LinkBroken("is gone")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
