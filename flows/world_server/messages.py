"""Messages that the package's kit cannot answer: they get an error in the protocol's form, and the session lives.

The kit (openenv 0.10) puts what it refuses into its answer, and fails where that is no text (a lone surrogate) or too
deep; it takes any JSON for an object. It then closes the session, and the episode is lost.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

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
