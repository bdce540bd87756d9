"""Hosts on one machine: each has a network, a name, processes and folders of its own, on a bridge between them.

Network, mount, UTS and PID namespaces of Linux. The bridge is in a namespace, too, so no host reaches this machine's
own network, and nothing of this machine's network changes. Links can be cut and mended. Needs root.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.flows.tiny_project import ROOT

NETWORK = "10.77.0"
FOLDERS_OF_A_USER = (Path("/tmp"), Path("/root"))
_names = itertools.count()


class NoNamespaces(RuntimeError):  # noqa: N818
    """This machine lets nobody make hosts."""


@dataclass
class Host:
    """One host of a `Network`."""

    name: str
    number: int
    network: "Network"
    holder: int
    """Process that keeps the host's namespaces, by its number outside of them."""

    @property
    def address(self) -> str:
        """Address on the bridge."""
        return f"{NETWORK}.{self.number}"

    def start(self, folder: Path, *command: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command on this host, in a folder of its own."""
        return self._start(folder, command, variables, subprocess.PIPE, subprocess.PIPE)

    def serve(self, folder: Path, log: Path, *command: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command that nobody listens to; what it says is added to a file."""
        with log.open("a") as file:
            return self._start(folder, command, variables, file, subprocess.STDOUT)

    def _start(
        self, folder: Path, command: Sequence[str], variables: Mapping[str, str], stdout: Any, stderr: int
    ) -> "subprocess.Popen[str]":
        enter = ["nsenter", f"--target={self.holder}", "--mount", "--uts", "--net", "--pid", f"--wdns={folder}"]
        return subprocess.Popen(
            [*enter, *command],
            env={**os.environ, "HOME": "/root", **variables},
            stdout=stdout,
            stderr=stderr,
            text=True,
        )

    def run(self, folder: Path, *command: str, timeout: float = 60, **variables: str) -> str:
        """Run a command that must succeed; return its output."""
        stdout, stderr = self.start(folder, *command, **variables).communicate(timeout=timeout)
        return stdout + stderr

    def mount(self, folder: str, *, megabytes: int) -> None:
        """Give this host a small disk of its own."""
        self.run(Path("/"), "mkdir", "-p", folder)
        said = self.run(Path("/"), "mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "own", folder)
        assert not said, said

    def cut(self) -> None:
        """Cut the link to the bridge; both ends stay, and nobody is told."""
        _ip("-n", self.network.switch, "link", "set", "dev", self.name, "down")

    def mend(self) -> None:
        """Mend the link."""
        _ip("-n", self.network.switch, "link", "set", "dev", self.name, "up")

    def slow(self, rate: str) -> None:
        """Let no more than `rate` ("1mbit") through to the host, with a queue of a tenth of a second."""
        queue = (
            "tc",
            "qdisc",
            "add",
            "dev",
            self.name,
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "10kb",
            "latency",
            "100ms",
        )
        subprocess.run(["ip", "netns", "exec", self.network.switch, *queue], check=True)


class Network:
    """A bridge and the hosts on it, until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Make the bridge; files of the hosts are kept in `folder`. Raises NoNamespaces."""
        self._folder, self._number, self._ends = folder, itertools.count(1), ExitStack()
        self._hosts: list[Host] = []
        self.switch = self._namespace("switch")
        _ip("-n", self.switch, "link", "add", "name", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "dev", "bridge", "up")

    def host(self, name: str, *, shared: Sequence[Path] = (), own_name: str | None = None) -> Host:
        """Add a host.

        It has this machine's system, Python and checkout; of /tmp and /root it has the `shared` folders alone. It
        knows no other host by name before `introduce`. Its own name is `own_name` (by default its address on the
        bridge).
        """
        number = next(self._number)
        space = self._namespace(name)
        _ip("-n", self.switch, "link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", self.switch, "link", "set", "dev", name, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        hosts = self._folder / f"{name}.hosts"
        hosts.write_text(f"127.0.0.1 localhost\n::1 localhost\n{own_name or f'{NETWORK}.{number}'} {name}\n")
        made = Host(name, number, self, self._hold(space, name, hosts, [ROOT, Path(sys.base_prefix), *shared]))
        self._hosts.append(made)
        return made

    def introduce(self) -> None:
        """Tell all hosts that there are by now the names of all others."""
        for host in self._hosts:
            others = [f"{other.address} {other.name}\n" for other in self._hosts if other is not host]
            with (self._folder / f"{host.name}.hosts").open("a") as names:  # the file that is mounted, not another one
                names.writelines(others)

    def close(self) -> None:
        """End every process of the hosts and remove what the network was made of."""
        self._ends.close()

    def _namespace(self, name: str) -> str:
        space = f"loopline-{os.getpid()}-{next(_names)}-{name}"
        _ip("netns", "add", space)
        self._ends.callback(_ip, "netns", "delete", space)
        return space

    def _hold(self, space: str, name: str, hosts: Path, kept: Sequence[Path]) -> int:
        """Start the process that keeps a host's namespaces; return its number."""
        script = self._folder / f"{name}.sh"
        script.write_text(_folders_of_a_host(name, hosts, kept))
        enter = ["ip", "netns", "exec", space]
        apart = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        outer = subprocess.Popen([*enter, *apart, "sh", "-e", str(script)], stdout=subprocess.PIPE, text=True)
        self._ends.callback(outer.wait)
        self._ends.callback(outer.kill)
        assert outer.stdout is not None
        if outer.stdout.readline() != "ready\n":
            raise NoNamespaces(f"{name} could not be made")
        return psutil.Process(outer.pid).children()[0].pid


def _folders_of_a_host(name: str, hosts: Path, kept: Sequence[Path]) -> str:
    """Return the script that names a host and gives it folders, as its first process."""
    lines = [f"hostname {name}", "mount --make-rprivate /", f"mount --bind {hosts} /etc/hosts"]
    inside = [one for one in kept if any(one.is_relative_to(own) for own in FOLDERS_OF_A_USER)]
    lines += ["mkdir -p /mnt", "mount -t tmpfs kept /mnt"]
    for number, folder in enumerate(inside):
        lines += [f"mkdir /mnt/{number}", f"mount --rbind {folder} /mnt/{number}"]
    lines += [f"mount -t tmpfs own {folder}" for folder in FOLDERS_OF_A_USER]
    for number, folder in enumerate(inside):
        lines += [f"mkdir -p {folder}", f"mount --rbind /mnt/{number} {folder}"]
    return "\n".join([*lines, "echo ready", "exec sleep infinity", ""])


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise NoNamespaces("there is no command ip") from None
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
