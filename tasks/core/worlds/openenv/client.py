"""A session on an OpenEnv server over the package's own client, and what its failures mean for an episode.

`check_server` compares the server at `world.openenv.url` with the section `world.openenv`. Imports the package, so
import this module late.
"""

import asyncio
import re
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, Field, FiniteFloat, JsonValue
from websockets.exceptions import InvalidStatus, WebSocketException

from tasks.core.interfaces.world import WorldFault
from tasks.core.processes.event_loop import EventLoopThread
from tasks.core.transient import Transient
from tasks.core.worlds.openenv.conversation import OpenEnvMismatch
from tasks.core.worlds.openenv.kind import OpenEnvConfig

try:
    from openenv.core import GenericEnvClient
except ImportError as error:
    raise ImportError(
        f"world.name: openenv: {error}; run `pip install -e '.[openenv]'` and `pip install --no-deps openenv==0.10.0`"
    ) from None

CONNECT_S = 10.0
"""Longest wait for a session. So also how long a server may take to start again."""
_POLL_S = 0.1
_CLOSE_S = 2.0
"""How long to wait for the end of a session; on a server that hangs, `websockets` ends it after 10 s."""
_CODE = re.compile(r"\(code: (\w+)\)$")


class OpenEnvUnavailable(RuntimeError, Transient):  # noqa: N818
    """No server answers at the address, or it has no session left."""


class ActionRefused(Exception):  # noqa: N818
    """A message broke the server's rules; nothing was played."""


class StepOutcome(BaseModel):
    """The outcome of a reset or a step."""

    observation: dict[str, JsonValue]
    reward: FiniteFloat | None = None
    done: bool = Field(strict=True)


class OneConnection(GenericEnvClient):
    """The package's client with a single connection.

    The original would send a step over a new connection when the old one is cut, and so to no episode.
    """

    async def _ensure_connected(self) -> None:
        if self._ws is None:
            raise ConnectionError("the connection was abandoned")

    def _parse_result(self, payload: dict[str, Any]) -> StepOutcome:
        return StepOutcome.model_validate(payload)


class Session:
    """A live session. Only one thread at a time may use it."""

    def __init__(self, config: OpenEnvConfig, reset: Mapping[str, JsonValue], loop: EventLoopThread) -> None:
        """Connect and reset. Retry for `CONNECT_S` while nobody listens or the server has no room.

        Raises WorldFault, OpenEnvMismatch, and OpenEnvUnavailable if there was no room all that time.
        """
        self._url, self._loop = config.url, loop
        until = time.monotonic() + CONNECT_S
        while True:
            self._client = OneConnection(config.url, connect_timeout_s=CONNECT_S, message_timeout_s=config.answer_s)
            try:
                self.opening = self._run(_opened(self._client, reset))
                return
            except ActionRefused as refusal:
                self.close()
                raise OpenEnvMismatch(f"{config.url}: reset with {dict(reset)}: {refusal}") from None
            except _NotNow as reason:
                self.close()
                if time.monotonic() > until:
                    raise reason.at_last from None
                time.sleep(_POLL_S)
            except BaseException:
                self.close()
                raise

    def step(self, action: Mapping[str, JsonValue]) -> StepOutcome:
        """Play an action. Raises ActionRefused, WorldFault and OpenEnvMismatch."""
        if self._loop.is_closed:
            raise WorldFault("the world is closed")
        try:
            return self._run(_stepped(self._client, action))
        except _NotNow as cut:
            raise cut.at_last from None

    def close(self) -> None:
        """End the session. Idempotent, never raises."""
        if not self._loop.is_closed:
            with suppress(Exception):
                self._loop.run(asyncio.wait_for(_closed(self._client), _CLOSE_S))

    def _run(self, work: Coroutine[Any, Any, StepOutcome]) -> StepOutcome:
        with _understood(self._url):
            return self._loop.run(work)


class _NotNow(Exception):  # noqa: N818
    """The server accepts no session now, but may do so in a moment."""

    def __init__(self, at_last: Exception) -> None:
        self.at_last = at_last


async def others_done(seconds: float) -> None:
    """Wait at most `seconds` for all other tasks of this loop, then cancel the rest."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, left = await asyncio.wait(others, timeout=seconds)
        for task in left:
            task.cancel()


async def _opened(client: OneConnection, reset: Mapping[str, JsonValue]) -> StepOutcome:
    await client.connect()
    answer: StepOutcome = await client.reset(**reset)
    return answer


async def _stepped(client: OneConnection, action: Mapping[str, JsonValue]) -> StepOutcome:
    answer: StepOutcome = await client.step(dict(action))  # outside of the loop the package would run one of its own
    return answer


async def _closed(client: OneConnection) -> None:
    await client.close()


@contextmanager
def _understood(url: str) -> Iterator[None]:
    """Translate the package's errors into what they mean."""
    try:
        yield
    except TimeoutError:
        raise WorldFault(f"{url}: no answer in time") from None
    except (OSError, WebSocketException) as error:
        raise _connection_error(url, error) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise OpenEnvMismatch(f"{url}: an answer does not match OpenEnv 0.10: {error}") from error
    except RuntimeError as error:
        raise _server_error(url, str(error)) from None


def _connection_error(url: str, error: Exception) -> Exception:
    cause = error.__cause__
    if isinstance(cause, InvalidStatus) and cause.response.status_code < 500:
        return OpenEnvMismatch(f"{url}: no OpenEnv websocket: {cause}")
    fault = WorldFault(f"{url}: {error}")
    return _NotNow(fault) if isinstance(cause, OSError | InvalidStatus) else fault


def _server_error(url: str, message: str) -> Exception:
    code = _CODE.search(message)
    match code and code.group(1):
        case "CAPACITY_REACHED":
            remedy = "lower collection.max_concurrent_episodes, or let the server have more sessions"
            return _NotNow(OpenEnvUnavailable(f"{url}: {message}; {remedy}"))
        case "VALIDATION_ERROR":
            return ActionRefused(message)
        case "UNKNOWN_TYPE" | "INVALID_JSON":
            return OpenEnvMismatch(f"{url}: the server speaks another version of OpenEnv: {message}")
        case _:
            return WorldFault(f"{url}: {message}")


def check_server(config: OpenEnvConfig) -> None:
    """Compare the server's version with `config.version`, and its action schema with the fields of `config.action`.

    Raises OpenEnvUnavailable when nobody answers for `CONNECT_S`, OpenEnvMismatch for another server or other fields.
    """
    if (wanted := config.version) is not None and (version := _document("metadata", config).get("version")) != wanted:
        is_another = "reports no version" if version is None else f"is of version {version}"
        raise OpenEnvMismatch(
            f"{config.url}: the server {is_another}, but world.openenv.version is {wanted}: start that server, or "
            "change the knob"
        )
    schema = _document("schema", config, "action")
    known, sent = set(schema.get("properties", ())), set(config.action)
    unknown = sent - known if schema.get("additionalProperties") is False else set()
    missing = set(schema.get("required", ())) - sent
    if unknown or missing:
        wrong = [f"has no {name}" for name in sorted(unknown)] + [f"needs {name}" for name in sorted(missing)]
        raise OpenEnvMismatch(
            f"{config.url}: an action there {' and '.join(wrong)}; its fields are {', '.join(sorted(known))}: "
            "change world.openenv.action"
        )


def _document(name: str, config: OpenEnvConfig, *path: str) -> dict[str, Any]:
    """Return the part at `path` of the server's JSON object `name`. Raises OpenEnvMismatch, OpenEnvUnavailable."""
    answer = _answer(f"{config.url.rstrip('/')}/{name}", config)
    try:
        content = answer.raise_for_status().json()
        for key in path:
            content = content[key]
        return dict(content)
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        raise OpenEnvMismatch(f"{answer.url}: no OpenEnv {name}, or not that of version 0.10 ({error!r})") from None


def _answer(url: str, config: OpenEnvConfig) -> httpx2.Response:
    """Ask until a server answers; one of this machine is asked without a proxy, as by the package's client."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        host = "localhost" if ip_address(host).is_loopback else host
    until = time.monotonic() + CONNECT_S
    while True:
        try:
            answer = httpx2.get(url, timeout=config.answer_s, trust_env=host != "localhost")
            if not answer.is_server_error:
                return answer
            problem = f"HTTP {answer.status_code}"
        except httpx2.TransportError as error:
            problem = repr(error)
        if time.monotonic() > until:
            raise OpenEnvUnavailable(
                f"{url}: no OpenEnv server answers ({problem}); start it, or set world.openenv.url"
            )
        time.sleep(_POLL_S)
