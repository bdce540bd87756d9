"""A free port, for servers that cannot bind to port 0."""

import socket


def free_port() -> int:
    """Return a free TCP port of this machine.

    Another process may take it before the server does.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
