"""Addresses of servers and databases, made safe for messages."""

import re
import socket


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
