"""The deployments' services before a server runs."""

import socket
from pathlib import Path

import pytest

from flows.runners.local_services import serve
from flows.runners.prefect_server import ServerError, require_free
from tasks.core.processes.addresses import free_port


def test_a_port_that_another_server_holds_is_not_mistaken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port {port} is not free \(Address already in use\); .*--port"):
            serve(tmp_path, port)
    assert not list(tmp_path.iterdir()), "nothing was started"


def test_the_port_of_a_server_that_has_just_ended_is_free() -> None:
    """Its closed connections stay for a minute, yet a server that died must start again at once."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        accepted.close()  # the server closes first, which leaves its port waiting
        client.recv(1)
    require_free(port)
