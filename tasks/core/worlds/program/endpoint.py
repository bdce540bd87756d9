"""The OpenAI API's own form: a request read field by field, the answer whole or as a stream, and errors.

What the pipeline decides (`SAMPLING`) and what changes no answer (`IDLE`) is accepted; any other field that cannot be
honoured is an error that names it.
"""

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.interfaces.asking import Ask, Refusal, Said
from tasks.core.tool_calls import checked

MODEL = "policy"
SAMPLING = {"temperature", "top_p", "top_k", "min_p", "seed"} | {
    f"{name}_penalty" for name in ("frequency", "presence", "repetition")
}
IDLE = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "reasoning_effort"}
ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "logit_bias": ({},),
    "echo": (False,),
}
"""Values of fields that are honoured because they ask for nothing."""


class BadRequest(Exception):  # noqa: N818
    """A request without an answer: why in words, the field to blame, and the API's status and code."""

    def __init__(self, message: str, field: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        fields = {"message": message, "type": "invalid_request_error", "param": field, "code": code}
        self.status, self.body = status, {"error": fields}


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: Literal["text", "input_text", "output_text"]
    text: str


class _Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _Call(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: _Function


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the message with text as its content. Raises ValueError."""
        message = self.model_dump(exclude_none=True)
        message["role"] = "system" if self.role == "developer" else self.role
        if isinstance(self.content, list):
            message["content"] = "\n".join(part.text for part in self.content)
        return checked({name: value for name, value in message.items() if value != []})


class _StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """A request's fields that are honoured."""

    model_config = ConfigDict(extra="allow")

    messages: list[_Message] = Field(min_length=1)
    model: str = MODEL
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def ask(self) -> Ask:
        """Return the request as the agent loop takes it. Raises BadRequest."""
        messages = []
        for index, message in enumerate(self.messages):
            try:
                messages.append(message.plain())
            except ValueError as error:
                raise BadRequest(f"a call's arguments: {error}", f"messages.{index}.tool_calls") from None
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        tools = () if self.tool_choice == "none" else tuple(self.tools or ())
        return Ask(tuple(messages), tools, tuple(filter(None, stop)), min(limits, default=None))


def read_request(body: bytes) -> ChatRequest:
    """Return a checked request. Raises BadRequest naming the field that cannot be honoured."""
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        rule = error.errors()[0]
        named = takewhile(lambda part: part != "str" and "[" not in str(part), rule["loc"])  # what follows is a type
        field = ".".join(map(str, named))
        raise BadRequest(rule["msg"], field or None) from None
    for name, value in (request.model_extra or {}).items():
        if value is None or name in SAMPLING | IDLE or value in ONLY.get(name, ()):
            continue
        raise BadRequest(f"{name}: {json.dumps(value)[:100]} cannot be honoured here", name)
    return request


@dataclass(frozen=True)
class Answer:
    """An answer to a request. Times and ids follow from its content: the same episode gives the same bytes."""

    request: ChatRequest
    said: Said
    number: int
    """Which answer of the episode it is."""

    def body(self) -> dict[str, Any]:
        """Return it whole."""
        choice = {"index": 0, "message": {"content": None, **self.said.message}, "logprobs": None}
        return self._with("chat.completion", [choice | {"finish_reason": self.said.finish}]) | {"usage": self._usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Return it as a stream has it: the role, the thought, the text, each call, and the end."""
        message = self.said.message
        yield self._delta({"role": "assistant", "content": ""})
        for name in ("reasoning_content", "content"):
            if message.get(name):
                yield self._delta({name: message[name]})
        for index, call in enumerate(message.get("tool_calls", ())):
            yield self._delta({"tool_calls": [{"index": index, **call}]})
        yield self._delta({}, self.said.finish)
        if self.request.stream_options and self.request.stream_options.include_usage:
            yield self._with("chat.completion.chunk", []) | {"usage": self._usage}

    def _delta(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._with("chat.completion.chunk", [choice])

    def _with(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        name = f"chatcmpl-{self.number}"
        return {"id": name, "object": kind, "created": 0, "model": self.request.model, "choices": choices}

    @property
    def _usage(self) -> dict[str, int]:
        prompt, sampled = self.said.prompt_tokens, self.said.sampled_tokens
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


_POLL_S = 0.1
_LONGEST_BODY = 64 * 2**20


@dataclass(frozen=True)
class Visit:
    """A request that waits for its answer."""

    ask: Ask
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
        visit = Visit(request.ask)
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
            raise BadRequest(said.message, said.field, code=said.code)
        return Answer(request, said, self._answers)

    def leave(self) -> None:
        """Refuse all requests from now on, and those that wait."""
        with self._lock:
            self._gone = True
            waiting = list(self._waiting)
        for answer in waiting:
            answer.cancel()


class Endpoint(ThreadingHTTPServer):
    """The server. Thread-safe."""

    daemon_threads = False  # so that `server_close` waits for them
    request_queue_size = 256

    def __init__(self) -> None:
        self.guests: dict[str, Guest] = {}
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_S,), name="endpoint", daemon=True)
        self._thread.start()

    def admit(self, on_visit: Callable[[Visit], None]) -> Guest:
        """Let an episode ask; `on_visit` gets its requests, from any thread."""
        guest = Guest(f"http://127.0.0.1:{self.server_address[1]}", on_visit)
        self.guests[guest.name] = guest
        return guest

    def dismiss(self, guest: Guest) -> None:
        """End an episode's right."""
        self.guests.pop(guest.name, None)
        guest.leave()

    def end(self) -> None:
        """End the server and all its connections. Idempotent."""
        for guest in list(self.guests.values()):
            self.dismiss(guest)
        self.shutdown()
        self._thread.join()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a program may leave at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Endpoint

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, *arguments: Any) -> None:
        """Write no log."""

    def do_POST(self) -> None:
        """Serve /v1/chat/completions; and by GET, /v1/models."""
        status, kind = 200, "application/json"
        try:
            answer = self._answer()
        except BadRequest as error:
            status, answer = error.status, error.body
        if isinstance(answer, dict):
            text = json.dumps(answer, ensure_ascii=False)
        else:
            kind, events = "text/event-stream", [json.dumps(chunk, ensure_ascii=False) for chunk in answer]
            text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815 - the base class's name

    def _answer(self) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """Return the answer, whole or in the parts of a stream. Raises BadRequest."""
        length = int(self.headers.get("Content-Length") or 0)
        if "chunked" in self.headers.get("Transfer-Encoding", "") or length > _LONGEST_BODY:
            self.close_connection = True
            raise BadRequest("a body needs a Content-Length of at most 64 MiB", status=411)
        body = self.rfile.read(length)
        name, _, path = self.path.strip("/").partition("/v1/")
        guest, given = self.server.guests.get(name), self.headers.get("Authorization", "").encode()
        if guest is None or not hmac.compare_digest(given, f"Bearer {guest.token}".encode()):
            raise _unknown()
        match self.command, path:
            case "GET", "models":
                model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "loopline"}
                return {"object": "list", "data": [model]}
            case "POST", "chat/completions":
                request = read_request(body)
                answer = guest.ask(request)
                return answer.chunks() if request.stream else answer.body()
        raise BadRequest(f"{self.command} {self.path}: there are chat/completions and models", status=404)


def _unknown() -> BadRequest:
    return BadRequest("no episode that goes on has this key", status=401, code="invalid_api_key")
