"""A real HTTP server that speaks the chat-completions protocol, with a policy behind it and faults on request."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer

SHIPPED = Path(__file__).parents[3] / "data" / "base_policies" / "pocket"
KEY = "sk-a-secret-of-this-test"
Reply = Callable[[dict[str, Any]], tuple[str, str]]
"""From a request's body to (text, finish reason)."""


@dataclass
class Fault:
    """Something that the server does instead of answering."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    """Promise more bytes than are sent, then hang up."""
    silent: bool = False
    """Answer nothing until the test is over."""


def refusal(status: int, message: str = "no", code: str = "", **headers: str) -> Fault:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Fault(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@dataclass
class ChatServer:
    """The server's state, as a test sees and sets it."""

    reply: Reply
    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    """Done to the next requests, in this order, before anything is answered."""
    answers_left: int | None = None
    """After so many more answers, `afterwards` is done to every request; None: there is no end."""
    afterwards: Fault = field(default_factory=lambda: refusal(429, code="insufficient_quota"))
    requests: list[dict[str, Any]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    key: str = KEY

    def fail(self, times: int = 1, **fault: Any) -> None:
        """Do something else than answer to the next requests; see `Fault`."""
        self.faults += [Fault(**fault)] * times

    def refuse(self, status: int, message: str = "no", code: str = "", times: int = 1, **headers: str) -> None:
        """Refuse the next requests, as OpenAI does."""
        self.faults += [refusal(status, message, code, **headers)] * times

    def fall_silent(self, after: int) -> None:
        """Answer so many more requests, then nothing until the test is over."""
        self.answers_left, self.afterwards = after, Fault(silent=True)

    def begin(self, body: dict[str, Any]) -> Fault | None:
        with self.lock:
            self.requests.append(body)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            if self.faults:
                return self.faults.pop(0)
            if self.answers_left == 0:
                return self.afterwards
            self.answers_left = self.answers_left and self.answers_left - 1
            return None

    def completion(self, body: dict[str, Any]) -> bytes:
        text, reason = self.reply(body)
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        answer = {"id": "1", "object": "chat.completion", "model": f"{body['model']}-dated", "usage": usage}
        return json.dumps({**answer, "choices": [choice]}).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        chat = self.server.chat
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = chat.begin(body)
        try:
            if self.headers.get("Authorization") != f"Bearer {KEY}":
                said = f"Incorrect API key provided: {self.headers.get('Authorization', '').removeprefix('Bearer ')}"
                self._send(refusal(401, said, "invalid_api_key"))
            elif self.path != "/v1/chat/completions":
                self._send(refusal(404, f"no such path: {self.path}"))
            else:
                self._send(fault or Fault(body=chat.completion(body)))
        finally:
            with chat.lock:
                chat.under_way -= 1

    def _send(self, fault: Fault) -> None:
        if fault.silent:
            self.server.chat.over.wait(60)
            self.close_connection = True
            return
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(fault.body) + (100 if fault.cut else 0)))
        self.end_headers()
        self.wfile.write(fault.body)
        self.close_connection = fault.cut

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    chat: ChatServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no fault of the server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@pytest.fixture
def serve() -> Iterator[Callable[[Reply], ChatServer]]:
    """Start servers that end with the test."""
    with ExitStack() as ends:

        def start(reply: Reply) -> ChatServer:
            server = Server(("127.0.0.1", 0), Handler)
            server.chat = ChatServer(reply, f"http://127.0.0.1:{server.server_address[1]}/v1")
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            for end in (server.server_close, thread.join, server.shutdown, server.chat.over.set):  # the last one first
                ends.callback(end)
            return server.chat

        yield start


@pytest.fixture
def server(serve: Callable[[Reply], ChatServer]) -> ChatServer:
    """Answers every conversation with how many messages it has."""
    return serve(lambda body: (f"{len(body['messages'])} messages", "stop"))


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for the answers that are paid for, a key, and a hundredth of the vendor's time between attempts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOPLINE_TEST_KEY", KEY)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tasks.core.chat_servers.client.LONGEST_SILENCE_S", 30.0)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.005)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.08)


@pytest.fixture
def configured() -> Callable[..., ChatApiConfig]:
    """The settings for a server; what is named changes `traffic` (or `request`, if it is a field of that)."""

    def configure(server: ChatServer, **changes: Any) -> ChatApiConfig:
        request = {name: changes.pop(name) for name in list(changes) if name in ("model", "send_seed", "base_url")}
        traffic = {"key_variable": "LOOPLINE_TEST_KEY", **changes}
        return ChatApiConfig.model_validate(
            {"request": {"base_url": server.url, "model": "tiny", **request}, "traffic": traffic}
        )

    return configure


@pytest.fixture(scope="session")
def chat() -> ChatFormat:
    return ChatFormat(load_tokenizer(SHIPPED))
