"""Adapters that arrive over HTTP, for a server that shares no disk with the pipeline: ASGI middleware of vLLM's server.

`PUT /loopline/adapters/NAME/FILE` with the file's SHA-256 in `x-sha256` and, where the server has a key, that key. The
file is kept in the folder of `LOOPLINE_ADAPTERS`; the answer names the adapter's folder, which vLLM then loads.
Adapters that are neither loaded nor among the newest are removed: vLLM may read a loaded one again, and no other.
Standard library only.
"""

import hashlib
import hmac
import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "LOOPLINE_ADAPTERS"
_NAME = re.compile(r"policy-[0-9a-f]{16}")
_PATH = re.compile(rf"/loopline/adapters/({_NAME.pattern})/(adapter_config\.json|adapter_model\.safetensors)")
_NEWEST = 4
"""Adapters that stay, loaded or not: on their way, or of another server with the same folder."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class ReceivedAdapters:
    """The server, and in front of it what takes adapters."""

    def __init__(self, app: App) -> None:
        self._app, self._folder = app, Path(os.environ[FOLDER_VARIABLE]).resolve()
        self._key = os.environ.get("VLLM_API_KEY", "")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/loopline/"):
            await self._app(scope, receive, send)
            return
        status, answer = await self._answer(scope, receive)
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Message, receive: Receive) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to a request."""
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        if self._key and not hmac.compare_digest(headers.get("authorization", ""), f"Bearer {self._key}"):
            return 401, _error("Unauthorized")
        found = _PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "PUT":
            return 404, _error("PUT /loopline/adapters/NAME/FILE")
        file = self._folder / found[1] / found[2]
        if not await _kept(file, headers.get("x-sha256", ""), receive):
            return 400, _error(f"{file.name} arrived with another SHA-256")
        await self._remove_old(scope)
        return 200, {"folder": str(file.parent)}

    async def _remove_old(self, scope: Message) -> None:
        old, adapters = list[Path](), [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        with suppress(FileNotFoundError):  # another server with the same folder is removing some
            old = sorted(adapters, key=lambda path: path.stat().st_mtime_ns)[:-_NEWEST]
        if old and (loaded := await self._loaded(scope)) is not None:
            for folder in old:
                if str(folder) not in loaded:
                    shutil.rmtree(folder, ignore_errors=True)

    async def _loaded(self, scope: Message) -> set[str] | None:
        """Return the folders of the models that the server has loaded, None where it does not say."""
        said = list[Message]()

        async def nothing() -> Message:
            return {"type": "http.request"}

        async def hear(message: Message) -> None:
            said.append(message)

        asked = {"method": "GET", "path": "/v1/models", "raw_path": b"/v1/models", "query_string": b""}
        await self._app({**scope, **asked}, nothing, hear)
        if said[0]["status"] != 200:
            return None
        return {card["root"] for card in json.loads(b"".join(part.get("body", b"") for part in said))["data"]}


async def _kept(file: Path, sha256: str, receive: Receive) -> bool:
    """Write the body of a request; return whether it is whole. Until then the file has another name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    arriving = file.with_name(f".{file.name}.{os.getpid()}.{id(receive)}")
    seen = hashlib.sha256()
    try:
        with arriving.open("wb") as written:
            more = True
            while more:
                message = await receive()
                more = message["type"] == "http.request" and message.get("more_body", False)
                piece = message.get("body", b"")
                seen.update(piece)
                written.write(piece)
        if seen.hexdigest() != sha256:
            return False
        arriving.replace(file)
        return True
    finally:
        arriving.unlink(missing_ok=True)


def _error(message: str) -> dict[str, Any]:
    """Return an error as vLLM's own answers have it."""
    return {"error": {"message": message}}
