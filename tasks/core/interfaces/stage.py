"""What every stage body is given: where, with which parameters, for which key, what is already loaded, who helps."""

from collections.abc import Callable, Hashable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tasks.core.config.params import Params
from tasks.core.records.layout import Layout

T = TypeVar("T")


class Part(Sized, Protocol):
    """A part of a stage's work that knows nothing of the others. Picklable; its length is its share of the work."""

    @property
    def description(self) -> str: ...


Job = TypeVar("Job", bound=Part)


class Warm:
    """Objects that outlive a stage within one process (a loaded model, an engine, a world).

    In `dvc repro` every stage has a process, so this starts empty; in the warm flow it is what saves the loading.
    One object per name: asking for the same name with another key replaces (and closes) the old one.
    """

    def __init__(self) -> None:
        self._objects: dict[str, tuple[Hashable, Any]] = {}

    def get(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        """The object called `name` made for `key` (say, the digest of what it was loaded from)."""
        held = self._objects.get(name)
        if held is not None and held[0] == key:
            return held[1]  # type: ignore[no-any-return]
        self.drop(name)
        made = make()
        self._objects[name] = (key, made)
        return made

    def drop(self, name: str) -> None:
        """Forget `name`, closing the object if it can be closed."""
        _, held = self._objects.pop(name, (None, None))
        close = getattr(held, "close", None)
        if close is not None:
            close()

    def close(self) -> None:
        """Drop everything."""
        for name in list(self._objects):
            self.drop(name)


class Workers(Protocol):
    """Who does the parts of a stage's work that know nothing of each other."""

    def map(self, work: Callable[["StageContext", Job], T], context: "StageContext", jobs: Sequence[Job]) -> list[T]:
        """What `work` returns for every job, in the order of `jobs`.

        `work` is a module's function, given a context equal to `context` but for what is warm; what it returns can be
        pickled. Raises what `work` raises.
        """
        ...


class ThisProcess:
    """Does one job after another here."""

    def map(self, work: Callable[["StageContext", Job], T], context: "StageContext", jobs: Sequence[Job]) -> list[T]:
        return [work(context, job) for job in jobs]


@dataclass(frozen=True)
class StageContext:
    """The input of a stage body `def stage(context: StageContext) -> None`."""

    layout: Layout
    params: Params
    key: str = ""
    """The iteration ("i003") or split ("test_normal") of a foreach stage; "" for the others."""
    warm: Warm = field(default_factory=Warm)
    workers: Workers = field(default_factory=ThisProcess)
