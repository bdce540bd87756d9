"""A process without a network that can still use sockets between itself and its children."""

import ctypes
import fcntl
import socket
import struct
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_SET_FLAGS, _UP = 0x8914, 1  # SIOCSIFFLAGS, IFF_UP


def leave_network() -> bool:
    """Move this process, which must have a single thread, to a network with nothing but its loopback.

    Returns False if the system has no network namespaces or denies them to this user.
    """
    if sys.platform != "linux":
        return False
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(_NEW_USER | _NEW_NETWORK) and unshare(_NEW_NETWORK):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        fcntl.ioctl(end, _SET_FLAGS, struct.pack("16sh22x", b"lo", _UP))
    return True
