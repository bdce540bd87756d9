"""The machines of one update, as the launcher of ranks on each of them sees the others."""

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Place:
    """This machine's place among those of an update."""

    number: int
    """0: the pipeline's own machine, whose ranks come first, and of which the first one writes the results."""
    store: tuple[str, int]
    """Host and port of torch's store, which machine 0 holds."""
    address: str
    """This machine's address, as the others reach it."""


class Meeting(Protocol):
    """The machines of an update, from the moment when all are there."""

    @property
    def place(self) -> Place: ...

    def broken(self, patience_s: float = 0) -> str | None:
        """Return why the update can't go on, after at most `patience_s` of waiting to learn it; None if it can."""
        ...


class Machines(Protocol):
    """The machines of which those of an update are taken."""

    def meet(self, job: Any) -> AbstractContextManager[Meeting]:
        """Wait until all machines of `job` (an UpdateJob) have what they need; tell them the end with the block."""
        ...


class Alone:
    """The meeting of an update whose ranks are all on this machine."""

    def __init__(self) -> None:
        self.place = Place(0, ("localhost", free_port()), "localhost")

    def broken(self, patience_s: float = 0) -> str | None:
        """Return None: there is nobody else."""
        return None


class ThisMachine:
    """No machine but this one."""

    @contextmanager
    def meet(self, job: Any) -> Iterator[Meeting]:
        yield Alone()


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.create_server(("", 0)) as free:
        return int(free.getsockname()[1])
