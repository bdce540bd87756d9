"""The machines that work for a run at the moment, in a file for `loopline watch`. Relative to the checkout."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.core.processes.running import Process, find_process
from tasks.core.records.files import ArtifactError, read_json, write_json

HOSTS = Path(".loopline/hosts.json")


@contextmanager
def shown_hosts(root: Path | None = None) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Yield what writes what each machine, by name, does; remove the file of the checkout (the current one) after it.

    A disk that is full stops no work.
    """
    file, shown = (root or Path.cwd()) / HOSTS, dict[str, str]()

    def show(hosts: Mapping[str, str]) -> None:
        if hosts != shown:
            shown.clear()
            shown.update(hosts)
            with suppress(OSError):
                write_json(file, {"process": find_process(os.getpid()), "hosts": shown})

    try:
        yield show
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def hosts_at_work(root: Path) -> dict[str, str]:
    """Return what each machine does; none where the process that wrote the file has ended."""
    try:
        found = read_json(root / HOSTS)
        return dict(found["hosts"]) if Process(*found["process"]).is_running else {}
    except (ArtifactError, OSError, KeyError, TypeError):
        return {}
