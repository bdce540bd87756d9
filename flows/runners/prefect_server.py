"""A Prefect server for as long as one command lasts, where PREFECT_API_URL names no lasting one.

Prefect can start such a server by itself, but that one outlives a killed flow, and is waited for only 20 s, where a
busy machine needs a minute. The first start in a project makes its database (7 s); later ones cost about 5 s. Runs stay
in .prefect/prefect.db.

    python -m flows.runners.prefect_server PORT     (what `local_server` starts)
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.signals import stop_cleanly_on_signals
from tasks.core.processes.addresses import fault_of, free_port, is_healthy, without_credentials
from tasks.core.processes.resources import spare_old_objects

LOG = Path(".prefect/server.log")
HERE = "127.0.0.1"
STARTUP_S = 300
STOP_S = 5
QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "0",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "0",
    "PREFECT__SERVER_FINAL": "1",
    "DO_NOT_TRACK": "1",
}
"""Nothing leaves the machine."""
SHORT_LIVED = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1"}
"""No UI, no scheduler: a one-run server needs neither."""
_FAULT = re.compile(r"[\w.]+(Error|Exception): ")
"""The last line of a traceback, below which a server says that it ends."""
_AUTH = "PREFECT_SERVER_API_AUTH_STRING"
"""A password of a server that others reach; ours is asked by this machine alone, and our clients know none."""


class ServerError(RuntimeError):
    """The Prefect server did not come up, or does not answer."""


@contextmanager
def prefect_api(meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Make the block's flows known to the server of PREFECT_API_URL, or to one that lives as long as the block.

    `meanwhile` is called while that one starts. Raises ServerError.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        require_server(url)
        yield
        return
    with local_server(meanwhile) as url:
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings({PREFECT_API_URL: url}):
            yield


@contextmanager
def local_server(meanwhile: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Start a server on a free port of this machine, yield the URL of its API, and stop it. Raises ServerError.

    `meanwhile` is called while it starts.
    """
    port = free_port()
    process = start_server(port, SHORT_LIVED)
    try:
        url = api_url(port)
        meanwhile()
        wait_until_healthy(url, process)
        yield url
    finally:
        stop(process)


def api_url(port: int) -> str:
    """Return the address of the API of a server on this port of this machine."""
    return f"http://{HERE}:{port}/api"


def require_server(url: str) -> None:
    """Raise ServerError where no Prefect server answers at `url`; Prefect's own client needs 114 lines for it."""
    if fault := fault_of(f"{url.rstrip('/')}/health"):
        raise ServerError(
            f"no Prefect server answers at {without_credentials(url)} ({fault}); start it, or unset PREFECT_API_URL"
        )


def require_free(port: int) -> None:
    """Raise ServerError where another process listens on this port: a Prefect server there would be taken for ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server: a closed connection is no holder
        try:
            probe.bind((HERE, port))
        except OSError as error:
            raise ServerError(
                f"port {port} is not free ({error.strerror}); end what holds it, or give --port"
            ) from None


def start_server(port: int, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server process that ends with this one; its log is .prefect/server.log."""
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.runners.prefect_server", str(port)],
            env={**{name: value for name, value in os.environ.items() if name != _AUTH}, **QUIET, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the flow; it then stops its server
        )


def wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for a server that was just started. Raises ServerError when it ends or takes over STARTUP_S."""
    deadline = time.monotonic() + STARTUP_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(_end_of(process.returncode))
        if is_healthy(f"{url}/health"):
            return
        time.sleep(0.1)
    raise ServerError(
        f"the Prefect server was not up after {STARTUP_S} s; see {LOG}, or set PREFECT_API_URL to a running one"
    )


def _end_of(code: int) -> str:
    """Return why a server of ours ended, and the way out: a history that a newer Prefect wrote, or half a file."""
    lines = [line.strip() for line in LOG.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    faults = [line for line in lines if _FAULT.match(line)]
    history = Path(os.environ.get("PREFECT_HOME", LOG.parent)) / "prefect.db"
    last = (faults or lines or ["it said nothing"])[-1]
    return (
        f"the Prefect server ended with exit code {code}: {last} (its log: {LOG}). "
        f"If its history is at fault: `mv {history} {history}.old`; or run `loopline run --without-prefect`"
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process of ours: SIGTERM, then SIGKILL after STOP_S seconds."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """Serve Prefect's API on the port given until the parent process ends."""
    stop_cleanly_on_signals()
    spare_old_objects()
    import uvicorn

    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        host=HERE,
        port=int(sys.argv[1]),
        log_level="error",
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
