"""A port for a server that can only be told a number."""

import socket


def free_port() -> int:
    """A TCP port of this machine that nobody listens on, so far: another process may take it before the server does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
