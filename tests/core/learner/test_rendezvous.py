"""Addresses at which machines meet, on this machine alone. On several hosts: tests/hosts."""

import socket

import psutil
import pytest

from tasks.core.config.params import ParamsError
from tasks.core.learner import rendezvous
from tasks.core.learner.rendezvous import endpoint, own_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [("node:29400", ("node", 29400)), ("10.7.0.1:1", ("10.7.0.1", 1)), ("[fd77::1]:29400", ("fd77::1", 29400))],
)
def test_an_ipv6_address_may_stand_in_brackets(text: str, expected: tuple[str, int]) -> None:
    assert endpoint(text) == expected


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_loopback_that_was_asked_for_means_this_machine_alone(host: str) -> None:
    assert own_address(f"{host}:29400", holds_store=True) in ("127.0.0.1", "::1")
    assert own_address("127.0.0.1:29400", holds_store=False) == "127.0.0.1"


def interfaces(*addresses: str) -> dict[str, list[object]]:
    families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
    snic = [
        psutil._ntuples.snicaddr(family, one, None, None, None) for family, one in zip(families, addresses, strict=True)
    ]
    return {"lo": snic[:1], "eth0": snic[1:]}


def test_a_name_that_means_loopback_here_is_the_machines_only_address_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Debian has it: the machine's own name is 127.0.1.1."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.1.1", 29400))])
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces("127.0.0.1", "10.7.0.4", "fe80::1%eth0"))
    assert own_address("debian:29400", holds_store=True) == "10.7.0.4"
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces("127.0.0.1", "10.7.0.4", "10.8.0.4"))
    with pytest.raises(ParamsError, match=r"debian is 127\.0\.1\.1 here.*one of its addresses \(10\.7\.0\.4, 10\.8"):
        own_address("debian:29400", holds_store=True)


def test_a_name_without_an_address_is_one_line() -> None:
    with pytest.raises(ParamsError, match=r"loopline join: nowhere\.invalid: .*; name an address"):
        own_address("nowhere.invalid:29400", holds_store=False)


def test_ranks_meet_by_the_interface_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rendezvous._INTERFACE, raising=False)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces("127.0.0.1", "10.7.0.4"))
    environment: dict[str, str] = {}
    monkeypatch.setattr(rendezvous.os, "environ", environment)
    rendezvous.name_interface("10.9.9.9")
    assert environment == {}
    rendezvous.name_interface("10.7.0.4")
    assert environment == {"GLOO_SOCKET_IFNAME": "eth0"}
