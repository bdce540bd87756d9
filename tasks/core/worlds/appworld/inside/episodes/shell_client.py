"""The HTTP client of a shell's `requester`: requests as httpx would make them, sent over the shell's descriptor."""

import json
import re
from typing import Any, Protocol
from urllib.parse import urlencode

import httpx

_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_.~-]*")
_REDIRECTS = (301, 302, 303, 307, 308)
_dumps, _loads = json.dumps, json.loads


class Channel(Protocol):
    """Messages out and in."""

    def send(self, message: dict[str, Any]) -> None: ...

    def receive(self) -> dict[str, Any]: ...


class Response:
    """The part of an httpx response that callers use."""

    def __init__(self, status: int, text: str) -> None:
        self.status_code, self.text = status, text

    def json(self) -> Any:
        """Raises json.JSONDecodeError."""
        return _loads(self.text)

    def __repr__(self) -> str:
        return f"<Response [{self.status_code} {httpx.codes.get_reason_phrase(self.status_code)}]>"


class ShellClient:
    """Has the methods that `appworld.requester.Requester` calls.

    Plain requests are put together here, at a fifth of httpx's cost; whatever is not plain (odd characters in a path or
    token, redirects) goes through httpx itself, so that it answers as with the package's own client.
    """

    def __init__(self) -> None:
        self.channel: Channel
        self._httpx = httpx.Client(
            transport=_Transport(self),
            base_url="http://testserver",
            headers={"user-agent": "testclient"},
            follow_redirects=True,
        )

    def get(self, url: str, params: dict[str, Any], headers: dict[str, str]) -> Any:
        return self._request("GET", url, headers, params=params)

    def delete(self, url: str, params: dict[str, Any], headers: dict[str, str]) -> Any:
        return self._request("DELETE", url, headers, params=params)

    def post(self, url: str, headers: dict[str, str], json: Any = None, data: Any = None) -> Any:
        return self._request("POST", url, headers, json=json, data=data)

    def put(self, url: str, headers: dict[str, str], json: Any = None) -> Any:
        return self._request("PUT", url, headers, json=json)

    def patch(self, url: str, headers: dict[str, str], json: Any = None) -> Any:
        return self._request("PATCH", url, headers, json=json)

    def _request(
        self, method: str, url: str, headers: dict[str, str], params: Any = None, json: Any = None, data: Any = None
    ) -> Any:
        if _PLAIN_PATH.fullmatch(url) and all(value.isascii() and value.isprintable() for value in headers.values()):
            answer = self.exchange(method, *_encoded(url, headers, params, json, data))
            if answer["status"] not in _REDIRECTS:
                return Response(answer["status"], answer["body"])
        return self._httpx.request(method, url, headers=headers, params=params, json=json, data=data)

    def exchange(self, method: str, url: str, headers: list[list[str]], body: str) -> dict[str, Any]:
        """Send one request, wait for its answer. Raises what the engine raised."""
        self.channel.send({"method": method, "url": url, "headers": headers, "body": body})
        answer = self.channel.receive()
        if "raised" in answer:
            raise _as_raised(answer["raised"])
        return answer


class _Transport(httpx.BaseTransport):
    def __init__(self, client: ShellClient) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = [[key.decode("latin-1"), value.decode("latin-1")] for key, value in request.headers.raw]
        url, body = request.url.raw_path.decode("ascii"), request.read().decode("utf-8")
        answer = self._client.exchange(request.method, url, headers, body)
        pairs = [(key, value) for key, value in answer["headers"]]
        return httpx.Response(answer["status"], headers=pairs, content=answer["body"].encode())


def _encoded(url: str, headers: dict[str, str], params: Any, json: Any, data: Any) -> tuple[str, list[list[str]], str]:
    target, pairs = f"/{url.lstrip('/')}", [[key.lower(), value] for key, value in headers.items()]
    if params:
        target += f"?{httpx.QueryParams(params)}"
    if data:
        pairs.append(["content-type", "application/x-www-form-urlencoded"])
        return target, pairs, urlencode(_form(data), doseq=True)
    if json is not None:
        pairs.append(["content-type", "application/json"])
        return target, pairs, _dumps(json)
    return target, pairs, ""


def _form(data: dict[str, Any]) -> list[tuple[str, str]]:
    fields = []
    for key, value in data.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            is_flag = one is None or isinstance(one, bool)
            fields.append((key, {True: "true", False: "false", None: ""}[one] if is_flag else str(one)))
    return fields


def _as_raised(chain: list[list[str]]) -> BaseException:
    """The error that the engine raised, with its causes: the same names and texts as in its own process."""
    first: BaseException | None = None
    for module, name, text in reversed(chain):
        error = type(name.rpartition(".")[2], (Exception,), {"__module__": module, "__qualname__": name})(text)
        error.__cause__ = first
        first = error
    assert first is not None
    return first
