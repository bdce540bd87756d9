"""The hosts themselves: apart but for what they share, and their links."""

from pathlib import Path

import pytest

from tests.hosts.network import Network

pytestmark = pytest.mark.hosts


def test_hosts_see_each_other_and_what_they_share_and_nothing_else(network: Network, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("both")
    (tmp_path / "secret").write_text("none")
    a, b = network.host("a", shared=[shared]), network.host("b", shared=[shared], own_name="127.0.1.1")
    assert a.run(shared, "cat", "file") == b.run(shared, "cat", "file") == "both"
    assert "No such file" in a.run(Path("/"), "cat", str(tmp_path / "secret"))
    assert [host.run(Path("/"), "hostname") for host in (a, b)] == ["a\n", "b\n"]
    assert "127.0.1.1" in b.run(Path("/"), "getent", "hosts", "b") and not b.run(Path("/"), "getent", "hosts", "a")
    connect = "import socket, sys; socket.create_connection((sys.argv[1], 22), 2)"
    assert "refused" in a.run(Path("/"), "python3", "-c", connect, b.address)
    b.cut()
    assert "refused" not in a.run(Path("/"), "python3", "-c", connect, b.address)
    b.mend()
    assert "refused" in a.run(Path("/"), "python3", "-c", connect, b.address)
