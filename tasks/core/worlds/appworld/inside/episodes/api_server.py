"""Answering HTTP requests by the engine's own FastAPI app, in this thread and without a socket."""

import re
from typing import Any
from urllib.parse import unquote, urlsplit

_REFUSED = {
    "status": 403,
    "headers": [["content-type", "application/json"]],
    "body": '{"message":"This API is not available."}',
}


class ApiServer:
    """The public APIs of one world. Keeps the log of what was really called."""

    def __init__(self, app: Any, app_names: tuple[str, ...]) -> None:
        from appworld.api_docs import prepare_api_docs

        self._app = app
        self._public = [name for name in app_names if name != "admin"]
        self._routes = {
            name: [
                (doc["method"], _pattern(doc["path"]), f"{name}.{doc['api_name']}")
                for doc in prepare_api_docs(name, include_private_apis=False)
            ]
            for name in self._public
        }
        self._paths = [
            (name, doc["method"], doc["path"])
            for name in self._public
            for doc in prepare_api_docs(name, include_private_apis=False)
        ]
        self._private = {
            name: [
                (doc["method"], _pattern(doc["path"]), doc["api_name"])
                for doc in prepare_api_docs(name, include_private_apis=True)
                if not any(doc["api_name"] == known.partition(".")[2] for _, _, known in self._routes[name])
            ]
            for name in self._public
        }
        self.log: list[dict[str, Any]] = []

    def plain_routes(self) -> list[tuple[str, str, str]]:
        """(app, method, path) of every public API without parameters in its path."""
        return [(app, method, path) for app, method, path in self._paths if "{" not in path]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """`request`: method, url (path and query), headers ([[name, value], ...]), body (text).

        Returns status, headers, body; or "raised": [[module, class, text], ...] of an error inside the engine.
        """
        method = str(request["method"])
        try:
            url = urlsplit(str(request["url"]))
        except ValueError:  # brackets around what is no address
            return _REFUSED
        name = self._api_name(method, url.path)
        if name is None:
            return _REFUSED
        entry = {"api": name, "method": method.lower(), "url": url.path, "query": url.query,
                 "body": str(request["body"]), "status": 500}  # fmt: skip
        try:
            response = _respond(self._app, method, url.path, url.query, request["headers"], str(request["body"]))
        except Exception as error:
            response = {"raised": _chain(error)}
        entry["status"] = response.get("status", 500)
        if name:
            self.log.append(entry)
        return response

    def _api_name(self, method: str, path: str) -> str | None:
        """`app.api`, "" for what is no API (it gets the engine's own 404), None for what agents may not call."""
        parts = path.lstrip("/").partition("/")
        if parts[0] not in self._public:
            return None if parts[0] else ""
        plain = unquote(path).rstrip("/")
        for one, pattern, name in self._routes[parts[0]]:
            if one == method and pattern.fullmatch(plain):
                return name
        if not parts[2] or any(pattern.fullmatch(plain) for _, pattern, _ in self._private[parts[0]]):
            return None
        return ""


def _pattern(path: str) -> "re.Pattern[str]":
    return re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part) for part in _split(path)))


def _split(path: str) -> list[str]:
    return re.split(r"(\{[^}]*\})", path.rstrip("/"))


def _respond(app: Any, method: str, path: str, query: str, headers: Any, body: str) -> dict[str, Any]:
    payload = body.encode()
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": unquote(path), "raw_path": path.encode(),
        "root_path": "", "scheme": "http", "query_string": query.encode(),
        "headers": [(str(k).lower().encode("latin-1"), str(v).encode("latin-1")) for k, v in headers],
        "client": ["testclient", 50000], "server": ["testserver", 80], "extensions": {}, "state": {},
    }  # fmt: skip
    answer: dict[str, Any] = {"status": 500, "headers": []}
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": payload, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
            answer["headers"] = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in message.get("headers", ())]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    _run(app(scope, receive, send))
    answer["body"] = b"".join(parts).decode("utf-8", "replace")
    return answer


def _run(coroutine: Any) -> None:
    """Drive a coroutine that never waits: everything that would is done in this thread (see `engine`)."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("an API tried to wait")


def _chain(error: BaseException) -> list[list[str]]:
    """The error and those that it was raised from, as text; the first is the outermost."""
    chain: list[list[str]] = []
    one: BaseException | None = error
    while one is not None and len(chain) < 5:
        chain.append([type(one).__module__, type(one).__qualname__, str(one)])
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return chain
