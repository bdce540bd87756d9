"""Servers and databases by address: without credentials in messages, a free port for a new one, whether it is up."""

import re
import socket

import httpx2


def without_credentials(text: str) -> str:
    """Remove user name and password from every address in `text`."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)


def free_port() -> int:
    """Return a free TCP port of this machine.

    Another process may take it before the server does.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_PATIENCE_S = 5.0


def is_healthy(url: str) -> bool:
    """Return whether `url` answers with status 200. Ignores the environment's proxies."""
    try:
        return httpx2.get(url, timeout=_PATIENCE_S, trust_env=False).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


def fault_of(url: str, patience_s: float = _PATIENCE_S) -> str | None:
    """Return why `url`, on a server that a user names, gives no JSON; None if it does, even with an error status.

    Uses the environment's proxies, except for hosts in NO_PROXY.
    """
    try:
        answer = httpx2.get(url, timeout=patience_s, follow_redirects=True)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, ImportError) as error:
        return str(error) or type(error).__name__
    if answer.is_server_error:
        return f"status {answer.status_code}"
    kind = answer.headers.get("content-type", "no type")
    return None if "json" in kind else f"status {answer.status_code}, an answer of {kind} instead of JSON"
