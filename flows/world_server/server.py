"""The package's server kit around a world: one process, a thread per session, until it is told to stop.

Messages that the kit (openenv 0.10) cannot answer get an error in the protocol's form, and the session lives. The kit
puts what it refuses into its answer, and fails where that is no text (a lone surrogate) or too deep; it takes any JSON
for an object. It then closes the session, and the episode is lost.
"""

import json
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from openenv.core.env_server import ConcurrencyConfig, create_fastapi_app

from flows.world_server.environment import EpisodeState, RequestRefused, Turn, TurnObservation, WorldEnvironment
from tasks.core.config.splits import SPLITS
from tasks.core.config.world import WorldConfig
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.records.files import digest

_MOST_DEPTH = 64
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class AnswerableMessages:
    """An ASGI application that hands on what `app` can answer, and answers the rest itself."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection or request."""
        if scope["type"] == "websocket" and scope["path"] == "/ws":
            await self._app(scope, _answered(receive, send), send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Message, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        _, refusal = _read(body)
        if refusal:
            await _refuse(refusal, send)
        else:
            await self._app(scope, _again(body, receive), send)


def _answered(receive: Receive, send: Send) -> Receive:
    async def next_message() -> Message:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            said = message.get("text")
            content, refusal = _read((message.get("bytes") or b"") if said is None else said)
            if not refusal and not isinstance(content, dict):
                refusal = "expected a JSON object"
            if not refusal:
                return message if said is not None else {**message, "text": json.dumps(content)}
            code = "VALIDATION_ERROR" if isinstance(content, dict) else "INVALID_JSON"
            error = {"type": "error", "data": {"message": refusal, "code": code}}
            await send({"type": "websocket.send", "text": json.dumps(error)})

    return next_message


def _read(message: str | bytes) -> tuple[Any, str]:
    """Return the content of a message, and why it is refused. The kit answers to what is no JSON."""
    try:
        content = json.loads(message) if message else None
    except RecursionError:
        return None, _TOO_DEEP
    except ValueError as error:
        return None, "" if isinstance(message, bytes) else f"Invalid JSON: {error}"
    if _is_deep(content):
        return content, _TOO_DEEP
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return content, "the text has a lone surrogate (\\ud800 to \\udfff), which no UTF-8 text holds"
    return content, ""


_TOO_DEEP = f"nested deeper than {_MOST_DEPTH} levels"


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(_MOST_DEPTH):
        level = [child for each in level for child in _children(each)]
    return bool(level)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _again(body: bytes, receive: Receive) -> Receive:
    """Hand on a body that was read; then what comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message


async def _refuse(reason: str, send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 422, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": reason}).encode()})


_IDLE_S = 3600.0
"""After so long without a message a session is closed."""
_STOP_S = 5
"""How long open sessions may take to end when the server does."""


def serve_prepared(config: WorldConfig, folder: Path | None, host: str, port: int, sessions: int) -> None:
    """Serve a world with the tasks in `folder`, which are made where it does not exist; None: made for this server.

    The version in /metadata is their digest. Ends as `serve` does.
    """
    with _tasks(config, folder) as tasks, closing(open_world(config, tasks)) as world:
        serve(world, config.name, digest(tasks), host, port, sessions)


@contextmanager
def _tasks(config: WorldConfig, kept: Path | None) -> Iterator[Path]:
    with TemporaryDirectory() as temporary:
        folder = kept or Path(temporary) / "world"
        if not folder.exists():
            prepare_world_folder(config, folder)
        yield folder


def serve(world: World, name: str, version: str, host: str, port: int, sessions: int) -> None:
    """Serve until SIGINT or SIGTERM; `version` is in /metadata. Exits with code 3 where the address is taken."""
    config = uvicorn.Config(
        AnswerableMessages(app_of(world, name, version, sessions)),
        host=host,
        port=port,
        log_level="warning",
        ws_per_message_deflate=False,  # costs more than it saves on one machine
        timeout_graceful_shutdown=_STOP_S,
    )
    tasks = sum(len(world.tasks(split)) for split in SPLITS)
    _Announced(config, f"{name} of version {version}: {tasks} tasks, {sessions} sessions").run()


def app_of(world: World, name: str, version: str, sessions: int) -> FastAPI:
    """Return the kit's application: a `WorldEnvironment` for every session, at most so many at once."""
    app: FastAPI = create_fastapi_app(
        partial(WorldEnvironment, world, name, version),
        Turn,
        TurnObservation,
        env_name=name,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=sessions, session_timeout=_IDLE_S),
        state_cls=EpisodeState,
        mode="simulation",
    )
    app.add_exception_handler(RequestRefused, _refused)
    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    """Answer a refusal over HTTP; over a session the kit does."""
    return JSONResponse({"detail": str(error)}, status_code=422)


class _Announced(uvicorn.Server):
    """Prints its address when it listens."""

    def __init__(self, config: uvicorn.Config, title: str) -> None:
        super().__init__(config)
        self._title = title

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            print(f"serving {self._title} at http://{host}:{port}", flush=True)
