"""Environment variables that a hook, a shell or a container passes to a command, corrected. Standard library only."""

import os
from collections.abc import MutableMapping

REPOSITORY = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INTERNAL_SUPER_PREFIX",
)  # fmt: skip
"""Set by git for a hook or `git rebase --exec`: they name the caller's repository and index."""
HERE = ("localhost", "127.0.0.1", "::1")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "socks_proxy")
_BYPASS = ("no_proxy", "NO_PROXY")
_USERS = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""In the order in which getpass.getuser reads them, before the passwd file."""


def settle_variables(variables: MutableMapping[str, str] = os.environ) -> None:
    """Correct `variables` for this command and its child processes. Idempotent; call it first in every command.

    Git finds the repository from the folder, not from variables. Requests to servers on this machine bypass proxies. A
    user id without an entry in the passwd file (`docker run --user 12345`) gets a name, because DVC and torch ask for
    it. Packages send no usage data: Prefect's client would from a terminal, from its import on. torch's C++ says only
    errors: it warns of every peer that has no name.
    """
    for name in REPOSITORY:
        variables.pop(name, None)
    variables.setdefault("DO_NOT_TRACK", "1")
    variables.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    _bypass_proxies(variables)
    if not any(variables.get(name) for name in _USERS) and not _has_entry():
        variables["USER"] = f"uid{os.getuid()}"


def _bypass_proxies(variables: MutableMapping[str, str]) -> None:
    """Add this machine to NO_PROXY in both spellings, because libraries differ in which spelling they read first."""
    if not any(variables.get(name) or variables.get(name.upper()) for name in _PROXIES):
        return
    given = next((variables[name] for name in _BYPASS if variables.get(name)), "")
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    if hosts != ["*"]:
        for name in _BYPASS:
            variables[name] = ",".join([*hosts, *(host for host in HERE if host not in hosts)])


def _has_entry() -> bool:
    """Return whether the passwd file has this process's user; True on systems without such a file."""
    try:
        from pwd import getpwuid
    except ImportError:
        return True
    try:
        getpwuid(os.getuid())
    except KeyError:
        return False
    return True
