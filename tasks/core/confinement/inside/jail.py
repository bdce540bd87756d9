"""The jail: everything a process gives up before it runs a line of an agent's code."""

import contextlib
import ctypes
import errno
import os
import resource
import struct
import sys
from typing import Any

from tasks.core.processes.running import killed_with_parent

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
            # A second barrier. It fails in user namespaces that map a single user, where root isn't the machine's root.
            with contextlib.suppress(OSError):
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
        self._die_with(zygote)  # after the change of user, because that change makes the kernel forget it
        if self._filter is not None:
            install_filter(self._filter, self._libc)
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


def keep_only(descriptors: list[int], begin: int = 3) -> None:
    """Close every other descriptor from `begin` on; by default all except the standard descriptors."""
    for descriptor in sorted(descriptors):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, max(begin, 1024))


def _working_filter(receiving: bool, libc: ctypes.CDLL) -> bytes | None:
    """Return this machine's filter if a child process can install it, else None; a container may refuse."""
    try:
        program = build_filter(os.uname().machine, receiving) if sys.platform == "linux" else None
    except OSError:
        return None
    return program if program is not None and _installs(program, libc) else None


def _installs(program: bytes, libc: ctypes.CDLL) -> bool:
    child = os.fork()
    if child == 0:
        try:
            install_filter(program, libc)
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


# What CPython needs to compute, allocate and answer on its socket. Every other call fails with EPERM: nothing can be
# opened, connected, started, signalled or traced. The numbers are the kernel's (asm/unistd.h); frequent calls come
# first.
_X86_64 = {
    "read": 0, "write": 1, "mmap": 9, "munmap": 11, "brk": 12, "mremap": 25, "mprotect": 10, "futex": 202,
    "clock_gettime": 228, "clock_getres": 229, "gettimeofday": 96, "clock_nanosleep": 230, "nanosleep": 35,
    "rt_sigprocmask": 14, "rt_sigreturn": 15, "restart_syscall": 219, "sched_yield": 24, "close": 3,
    "exit": 60, "exit_group": 231,
}  # fmt: skip
_AARCH64 = {
    "read": 63, "write": 64, "mmap": 222, "munmap": 215, "brk": 214, "mremap": 216, "mprotect": 226, "futex": 98,
    "clock_gettime": 113, "clock_getres": 114, "gettimeofday": 169, "clock_nanosleep": 115, "nanosleep": 101,
    "rt_sigprocmask": 135, "rt_sigreturn": 139, "restart_syscall": 128, "sched_yield": 124, "close": 57,
    "exit": 93, "exit_group": 94,
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
_RECVMSG = {"x86_64": 47, "aarch64": 212}

_LOAD_WORD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF opcodes
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def build_filter(machine: str, receiving: bool = False) -> bytes:
    """Build the BPF program for `machine` (as in `os.uname().machine`). Raises OSError for an unknown machine.

    `receiving` also allows recvmsg, which receives descriptors over a socket. x32 calls on x86-64 have a high bit set
    in their number, so no allowlist entry matches them.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no seccomp allowlist for {machine}")
    architecture, allowed = _ARCHITECTURES[machine]
    program = [(_LOAD_WORD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL_PROCESS)]
    program.append((_LOAD_WORD, 0, 0, 0))
    for number in (*allowed.values(), *([_RECVMSG[machine]] if receiving else [])):
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, _ERRNO | errno.EPERM))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def install_filter(program: bytes, libc: ctypes.CDLL) -> None:
    """Put the calling process under `program`, permanently. Raises OSError when the kernel refuses."""
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(len(program) // 8, program)), 0, 0))


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
