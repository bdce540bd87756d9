"""Checking that the server at `world.openenv.url` matches the section `world.openenv`."""

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
    """Compare the server's version with `config.version`, and its action schema with the fields of `config.action`.

    Raises OpenEnvUnavailable when nobody answers for `connect_s`, OpenEnvMismatch for another server or other fields.
    """
    if config.version is not None:
        _check_version(config, config.version)
    _check_action(config)


def _check_version(config: OpenEnvConfig, wanted: str) -> None:
    version = _document("metadata", config).get("version")
    if version != wanted:
        is_another = "reports no version" if version is None else f"is of version {version}"
        raise OpenEnvMismatch(
            f"{config.url}: the server {is_another}, but world.openenv.version is {wanted}: start that server, or "
            "change the knob"
        )


def _check_action(config: OpenEnvConfig) -> None:
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


def _is_of_this_machine(url: str) -> bool:
    """Return whether the address is local, so that the package's client bypasses a proxy as well."""
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
            problem = f"HTTP {answer.status_code}"
        except httpx2.TransportError as error:
            problem = repr(error)
        if time.monotonic() > until:
            raise OpenEnvUnavailable(
                f"{url}: no OpenEnv server answers ({problem}); start it, or set world.openenv.url"
            )
        time.sleep(_POLL_S)
