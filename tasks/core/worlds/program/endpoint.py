"""The endpoint that programs ask: one server on loopback for all episodes of a process, a path and a token for each."""

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tasks.core.interfaces.asking import Refusal, Said
from tasks.core.worlds.program.chat_api import (
    Answer,
    BadRequest,
    ChatRequest,
    error_body,
    models_body,
    read_request,
    refused,
)

_POLL_S = 0.1
_LONGEST_BODY = 64 * 2**20


@dataclass(frozen=True)
class Visit:
    """A request that waits for its answer."""

    request: ChatRequest
    answer: "Future[Said | Refusal]" = field(default_factory=Future)


class Guest:
    """An episode's right to ask: its path, its token, and the requests that wait."""

    def __init__(self, address: str, on_visit: Callable[[Visit], None]) -> None:
        self.name, self.token = secrets.token_hex(8), f"sk-{secrets.token_hex(16)}"
        self.base_url = f"{address}/{self.name}/v1"
        self._on_visit, self._lock, self._gone = on_visit, threading.Lock(), False
        self._waiting: set[Future[Said | Refusal]] = set()
        self._answers = 0

    def ask(self, request: ChatRequest) -> Answer:
        """Wait for the answer. Raises BadRequest."""
        request.ask  # noqa: B018 - raises for what cannot be honoured, before anybody waits
        visit = Visit(request)
        with self._lock:
            if self._gone:
                raise _unknown()
            self._waiting.add(visit.answer)
            self._on_visit(visit)
        try:
            said = visit.answer.result()
        except CancelledError:
            raise _unknown() from None
        with self._lock:
            self._waiting.discard(visit.answer)
            self._answers += 1
        if isinstance(said, Refusal):
            raise BadRequest(400, said)
        return Answer(request, said, self._answers)

    def leave(self) -> None:
        """Refuse all requests from now on, and those that wait."""
        with self._lock:
            self._gone = True
            waiting = list(self._waiting)
        for answer in waiting:
            answer.cancel()


class Endpoint:
    """The server. Thread-safe."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._address = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(_POLL_S,), name="endpoint", daemon=True)
        self._thread.start()

    def admit(self, on_visit: Callable[[Visit], None]) -> Guest:
        """Let an episode ask; `on_visit` gets its requests, from any thread."""
        guest = Guest(self._address, on_visit)
        self._server.guests[guest.name] = guest
        return guest

    def dismiss(self, guest: Guest) -> None:
        """End an episode's right."""
        self._server.guests.pop(guest.name, None)
        guest.leave()

    def close(self) -> None:
        """End the server and all its connections. Idempotent."""
        for guest in list(self._server.guests.values()):
            self.dismiss(guest)
        self._server.shutdown()
        self._thread.join()
        for connection in list(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` waits for them
    request_queue_size = 256

    def __init__(self, *arguments: Any) -> None:
        self.guests: dict[str, Guest] = {}
        self.connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a program may leave at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, *arguments: Any) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        """Serve /v1/models."""
        self._serve({"models": lambda guest, body: self._send(200, models_body())})

    def do_POST(self) -> None:
        """Serve /v1/chat/completions."""
        self._serve({"chat/completions": self._complete})

    def _serve(self, served: dict[str, Callable[[Guest, bytes], None]]) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if "chunked" in self.headers.get("Transfer-Encoding", "") or length > _LONGEST_BODY:
                self.close_connection = True
                raise refused("a body needs a Content-Length of at most 64 MiB", None, 411)
            body = self.rfile.read(length)
            name, _, path = self.path.strip("/").partition("/v1/")
            guest = self._admitted(name)
            if path not in served:
                raise refused(f"{self.command} {self.path}: there are chat/completions and models", None, 404)
            served[path](guest, body)
        except BadRequest as error:
            self._send(error.status, error_body(error.refusal))

    def _admitted(self, name: str) -> Guest:
        guest = self.server.guests.get(name)
        given = self.headers.get("Authorization", "").encode()
        if guest is None or not hmac.compare_digest(given, f"Bearer {guest.token}".encode()):
            raise _unknown()
        return guest

    def _complete(self, guest: Guest, body: bytes) -> None:
        request = read_request(body)
        answer = guest.ask(request)
        if not request.stream:
            self._send(200, answer.body())
            return
        events = [json.dumps(chunk, ensure_ascii=False) for chunk in answer.chunks()]
        text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        self._write(200, "text/event-stream", text.encode())

    def _send(self, status: int, body: dict[str, Any]) -> None:
        self._write(status, "application/json", json.dumps(body, ensure_ascii=False).encode())

    def _write(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _unknown() -> BadRequest:
    return refused("no episode that goes on has this key", None, 401, "invalid_api_key")
