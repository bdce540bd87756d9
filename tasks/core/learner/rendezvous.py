"""The addresses at which the machines of one update meet.

torch guesses from host names which machine holds the common store and what the others call this one. A machine's own
name may resolve to a loopback address (127.0.1.1 on Debian and Ubuntu), and to nothing on another machine. So nothing
is guessed: the pipeline's machine holds the store, and each machine is called by an address that the others reach.
"""

import ipaddress
import os
import socket

from tasks.core.config.params import ParamsError

KNOB = "update.distributed.rendezvous"
LONGEST_WAIT_S = 1800
"""Seconds that one rank waits for the others before it fails, and the update with it. A rank may be that late: it loads
a model of any size, and its machine is started by hand."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
"""The network interface by which gloo's ranks reach each other; by default the one of the machine's host name."""


def endpoint(rendezvous: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 address may stand in brackets."""
    host, _, port = rendezvous.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def own_address(rendezvous: str, holds_store: bool) -> str:
    """Return the address by which the other machines of an update reach this one.

    `holds_store`: whether this is the machine that `rendezvous` names. Raises ParamsError where its name has no
    address, or has a loopback address here and this machine more than one other.
    """
    host, port = endpoint(rendezvous)
    resolved = _resolved(host, port, KNOB if holds_store else "loopline join")
    if not holds_store:
        return _source_towards(resolved, port)
    if not ipaddress.ip_address(resolved).is_loopback or _means_this_machine_alone(host):
        return resolved
    others = _reachable_addresses()
    if len(others) == 1:
        return others[0]
    raise ParamsError(
        f"{KNOB}: {host} is {resolved} here, by which no other machine reaches this one; name one of its addresses "
        f"({', '.join(others) or 'it has none'})"
    )


def name_interface(address: str) -> None:
    """Make the ranks that this process starts meet by the interface of `address`, if the user has named none."""
    interface = next((name for name, own in _interfaces() if own == address), None)
    if interface is not None:
        os.environ.setdefault(_INTERFACE, interface)


def _resolved(host: str, port: int, place: str) -> str:
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ParamsError(f"{place}: {host}: {error.strerror}; name an address, or a name that resolves here") from None


def _source_towards(address: str, port: int) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing: the system only chooses a route
        try:
            probe.connect((address, port))
        except OSError as error:
            raise ParamsError(
                f"loopline join: {address} can't be reached from this machine: {error.strerror}"
            ) from None
        return str(probe.getsockname()[0])


def _means_this_machine_alone(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reachable_addresses() -> list[str]:
    """Return this machine's addresses, without loopback and link-local ones."""
    own = [ipaddress.ip_address(address) for _, address in _interfaces()]
    return [str(address) for address in own if not (address.is_loopback or address.is_link_local)]


def _interfaces() -> list[tuple[str, str]]:
    """Return the names and addresses of this machine's network interfaces."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    return [
        (name, one.address.partition("%")[0])
        for name, addresses in psutil.net_if_addrs().items()
        for one in addresses
        if one.family in families
    ]
