"""The jail: everything a process gives up before it runs a line of an agent's code."""

import contextlib
import ctypes
import os
import resource
import sys
from typing import Any

from tasks.core.confinement.inside import seccomp
from tasks.core.processes.parent_death import killed_with_parent

_NOBODY = 65534
_NO_SECCOMP = (
    "this machine accepts no seccomp filter (supported on x86-64 and aarch64; a container may refuse it): only a "
    "Python audit hook confines agents' code, which stops mistakes but not attacks"
)
_DENIED_EVENTS = (
    "open", "os.", "socket.", "subprocess.", "ctypes.", "shutil.", "pty.", "fcntl.", "mmap.", "resource.",
    "signal.", "_thread.start", "_posixsubprocess.", "syslog.", "glob.", "pathlib.", "sqlite3.", "tempfile.",
)  # fmt: skip


class Jail:
    """Confinement that is prepared once in the zygote and applied in every process that the zygote forks.

    `confinement` is "seccomp", "audit" or "auto" (seccomp where the system supports it, tested once here). "audit" is
    for systems without seccomp (macOS): a Python audit hook, which stops a confused agent but not a determined
    attacker. A process that runs no agent's code itself may be allowed to receive `descriptors` more descriptors over
    its channel.
    """

    def __init__(self, confinement: str, memory_bytes: int, cpu_seconds: int, descriptors: int = 0) -> None:
        self._confinement = confinement
        self._descriptors = descriptors
        self._memory_bytes = memory_bytes
        self._cpu_seconds = cpu_seconds
        self._die_with = killed_with_parent()
        self._libc = ctypes.CDLL(None, use_errno=True)
        _ = self._libc.prctl  # looked up once here instead of in every child
        self._filter = None if confinement == "audit" else _working_filter(descriptors > 0, self._libc)
        if confinement == "seccomp" and self._filter is None:
            raise OSError("confinement: seccomp is set, but this system has no seccomp")

    @property
    def warning(self) -> str:
        """Warning for the pipeline if "auto" found no seccomp on a system that should have it; else empty."""
        as_expected = self._filter is not None or self._confinement == "audit" or sys.platform != "linux"
        return "" if as_expected else _NO_SECCOMP

    def shut(self, channel: int, zygote: int) -> str:
        """Give up everything except the descriptor `channel`. Returns the confinement in force.

        Raises OSError when a limit or the filter cannot be set.
        """
        keep_only([channel], begin=0)
        self._limit(channel)
        if os.getuid() == 0:
            self._become_nobody()
        self._die_with(zygote)  # after the change of user, because that change makes the kernel forget it
        if self._filter is not None:
            seccomp.install_filter(self._filter, self._libc)
            return "seccomp"
        sys.addaudithook(_refuse)
        return "audit"

    def _limit(self, channel: int) -> None:
        # macOS refuses an RLIMIT_AS below what is already mapped, and does not enforce it otherwise.
        if sys.platform == "linux":
            space = _address_space() + self._memory_bytes
            _lower(resource.RLIMIT_AS, space, space)
        _lower(resource.RLIMIT_CPU, self._cpu_seconds, self._cpu_seconds + 1)
        for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
            _lower(limit, 0, 0)
        files = channel + 1 + self._descriptors if self._descriptors else 0
        _lower(resource.RLIMIT_NOFILE, files, files)

    def _become_nobody(self) -> None:
        # A second barrier. It fails in user namespaces that map a single user, where root is not the machine's root.
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)


def keep_only(descriptors: list[int], begin: int = 3) -> None:
    """Close every other descriptor from `begin` on; by default all except the standard descriptors."""
    for descriptor in sorted(descriptors):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, max(begin, 1024))


def _working_filter(receiving: bool, libc: ctypes.CDLL) -> bytes | None:
    """Return this machine's filter if a child process can install it, else None; a container may refuse."""
    try:
        program = seccomp.build_filter(os.uname().machine, receiving) if sys.platform == "linux" else None
    except OSError:
        return None
    return program if program is not None and _installs(program, libc) else None


def _installs(program: bytes, libc: ctypes.CDLL) -> bool:
    child = os.fork()
    if child == 0:
        try:
            seccomp.install_filter(program, libc)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _lower(limit: int, soft: int, hard: int) -> None:
    present = resource.getrlimit(limit)[1]
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(limit, (soft, hard))


def _address_space() -> int:
    """Return the bytes mapped by this process.

    Avoids a file object: creating one copies 40 shared pages on every start.
    """
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 128).split()[0]) * resource.getpagesize()
    finally:
        os.close(descriptor)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(_DENIED_EVENTS):
        raise PermissionError(1, "Operation not permitted")
