"""Check that the server at `world.openenv.url` is one that the section's action can be sent to."""

import time
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tasks.core.config.openenv import OpenEnvConfig
from tasks.core.worlds.openenv.client import OpenEnvUnavailable
from tasks.core.worlds.openenv.conversation import OpenEnvMismatch

_POLL_S = 0.2


def check_server(config: OpenEnvConfig) -> None:
    """Hold the fields of `config.action` against the server's schema of actions.

    Raises OpenEnvUnavailable when nobody answers for `connect_s`, OpenEnvMismatch for another server or other fields.
    """
    schema = _action_schema(config)
    known, sent = set(schema.get("properties", ())), set(config.action)
    unknown = sent - known if schema.get("additionalProperties") is False else set()
    missing = set(schema.get("required", ())) - sent
    if unknown or missing:
        wrong = [f"has no {name}" for name in sorted(unknown)] + [f"needs {name}" for name in sorted(missing)]
        raise OpenEnvMismatch(
            f"{config.url}: an action there {' and '.join(wrong)}; its fields are {', '.join(sorted(known))}: "
            "change world.openenv.action"
        )


def _action_schema(config: OpenEnvConfig) -> dict[str, Any]:
    answer = _answer(f"{config.url.rstrip('/')}/schema", config)
    try:
        return dict(answer.raise_for_status().json()["action"])
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        raise OpenEnvMismatch(
            f"{answer.url}: no schema of OpenEnv's there, or one of another version than 0.10 ({error!r})"
        ) from None


def _is_of_this_machine(url: str) -> bool:
    """Whether the package's client goes past a proxy to it, too."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _answer(url: str, config: OpenEnvConfig) -> httpx2.Response:
    until = time.monotonic() + config.connect_s
    while True:
        try:
            answer = httpx2.get(url, timeout=config.answer_s, trust_env=not _is_of_this_machine(url))
            if not answer.is_server_error:
                return answer
            said = f"HTTP {answer.status_code}"
        except httpx2.TransportError as error:
            said = repr(error)
        if time.monotonic() > until:
            raise OpenEnvUnavailable(f"{url}: no OpenEnv server answers ({said}); start it, or set world.openenv.url")
        time.sleep(_POLL_S)
