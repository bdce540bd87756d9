"""A seccomp filter that leaves a process only computation and one open socket (Linux, x86-64 and aarch64)."""

import ctypes
import errno
import os
import struct

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
