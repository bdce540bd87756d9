"""The HTTP server on the pipeline's machine at which others join an update."""

import errno
import hmac
import http.server
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.workers.gathering import Gathering, Guest
from flows.workers.join_channel import (
    PIECE_BYTES,
    SESSION,
    SILENCE_S,
    Coming,
    NoPlace,
    Reason,
    Refused,
    made_secret,
    secret_file,
)
from tasks.core.config.params import ParamsError
from tasks.core.config.section import Section
from tasks.core.learner.rendezvous import KNOB, endpoint

_MOST_ASKED = 2**16
_log = logging.getLogger(__name__)


@contextmanager
def served(gathering: Gathering, rendezvous: str, address: str) -> Iterator[None]:
    """Serve an update at the port of `rendezvous` and this machine's `address`. Raises ParamsError."""
    _, port = endpoint(rendezvous)
    try:
        server = _Server(gathering, address, port)
    except OSError as error:
        reasons = {errno.EADDRINUSE: "is in use; does another pipeline run here?"}
        reasons[errno.EADDRNOTAVAIL] = "is no address of this machine, which runs the pipeline"
        raise ParamsError(f"{KNOB}: {address}:{port} {reasons.get(error.errno or 0, error.strerror)}") from None
    serving = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    serving.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, gathering: Gathering, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.gathering, self.secret = gathering, made_secret()
        super().__init__((address, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a connection that breaks is seen by the silence that follows."""
        _log.debug("%s", client_address, exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = SILENCE_S

    def do_GET(self) -> None:
        """Send a file that the update needs, or its rest from byte N on (`Range: bytes=N-`)."""
        if self._guest() is None:
            return
        path = self.server.gathering.paths.get(self.path.removeprefix("/files/"))
        if path is None:
            self._answer(HTTPStatus.NOT_FOUND, Reason(reason="no such file"))
            return
        size, found = path.stat().st_size, re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(found[1]) if found else 0
        if found and start >= size:
            self._answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, Reason(reason=f"{size} bytes in all"))
            return
        self.send_response(HTTPStatus.PARTIAL_CONTENT if found else HTTPStatus.OK)
        self.send_header("Content-Length", str(size - start))
        if found:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        self._send(path, start)

    def _send(self, path: Path, start: int) -> None:
        """Send a file from byte `start` on. Each piece that passes is a sign of life of the machine that takes it."""
        with path.open("rb") as file:
            file.seek(start)
            while piece := file.read(PIECE_BYTES):
                self.wfile.write(piece)
                if self.server.gathering.hear(self.headers.get(SESSION, "")) is None:
                    return  # its place was given away; it comes again for the rest

    def do_POST(self) -> None:
        """Answer a machine's message."""
        said = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), _MOST_ASKED))
        try:
            if self.path == "/join":
                if self._has_secret():
                    coming = Coming.model_validate_json(said)
                    self._answer(HTTPStatus.OK, self.server.gathering.join(coming, self.client_address[0]))
            elif guest := self._guest():
                self._hear(guest, said)
        except Refused as error:
            self._answer(HTTPStatus.CONFLICT, Reason(reason=str(error)))
        except NoPlace as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, Reason(reason=str(error)))
        except ValidationError:
            self._answer(
                HTTPStatus.CONFLICT, Reason(reason="another version of loopline; bring both to the same commit")
            )

    def _hear(self, guest: Guest, said: bytes) -> None:
        gathering = self.server.gathering
        if self.path == "/failed":
            gathering.fail(guest, Reason.model_validate_json(said).reason)
        elif self.path == "/ready":
            guest.is_ready = True
        self._answer(HTTPStatus.OK, gathering.news(guest) if self.path == "/news" else Reason(reason="heard"))

    def _guest(self) -> Guest | None:
        if not self._has_secret():
            return None
        guest = self.server.gathering.hear(self.headers.get(SESSION, ""))
        if guest is None:
            self._answer(HTTPStatus.GONE, Reason(reason="this machine's place was given away"))
        return guest

    def _has_secret(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self.server.secret.encode()):
            return True
        self._answer(
            HTTPStatus.UNAUTHORIZED,
            Reason(reason=f"the secret is another one: copy {secret_file()} of the pipeline's machine here"),
        )
        return False

    def _answer(self, status: HTTPStatus, message: Section) -> None:
        said = message.model_dump_json().encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of requests."""
