"""The machines that work for a run at the moment, in a file for `loopline watch`. Relative to the checkout."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.core.processes.running import Process, find_process
from tasks.core.records.files import ArtifactError, read_json, write_json

HOSTS = Path(".loopline/hosts.json")


class ShownHosts:
    """The file, while work is done elsewhere."""

    def __init__(self, root: Path) -> None:
        self._file, self._shown = root / HOSTS, dict[str, str]()

    def show(self, hosts: Mapping[str, str]) -> None:
        """Write what each machine, by name, does. A disk that is full stops no work."""
        if hosts != self._shown:
            self._shown = dict(hosts)
            with suppress(OSError):
                write_json(self._file, {"process": find_process(os.getpid()), "hosts": self._shown})


@contextmanager
def shown_hosts(root: Path | None = None) -> Iterator[ShownHosts]:
    """Yield the file of the checkout at `root` (the current folder); remove it after the block."""
    shown = ShownHosts(root or Path.cwd())
    try:
        yield shown
    finally:
        with suppress(OSError):
            shown._file.unlink(missing_ok=True)


def hosts_at_work(root: Path) -> dict[str, str]:
    """Return what each machine does; none where the process that wrote the file has ended."""
    try:
        found = read_json(root / HOSTS)
        return dict(found["hosts"]) if Process(*found["process"]).is_running else {}
    except (ArtifactError, OSError, KeyError, TypeError):
        return {}
