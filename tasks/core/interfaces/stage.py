"""The input of every stage body: project folder, parameters, key, loaded objects and executor."""

import gc
from collections.abc import Callable, Hashable, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tasks.core.config.section import Section
from tasks.core.records.layout import Layout

T = TypeVar("T")
Inputs = TypeVar("Inputs", bound=Section, covariant=True)


class WorkItem(Sized, Protocol):
    """A part of a stage's work that is independent of the others. Picklable; its length is its share of the work."""

    @property
    def description(self) -> str: ...


Item = TypeVar("Item", bound=WorkItem)


class ProcessCache:
    """Objects that outlive a stage within one process (a loaded model, an engine, a world).

    They save loading in `dvc repro` and in the warm flow; a stage with its own process begins with none. There is one
    object per name: asking for the same name with another key replaces (and closes) the old object.
    """

    def __init__(self) -> None:
        self._objects: dict[str, tuple[Hashable, Any]] = {}

    def get(self, name: str, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object called `name` made for `key` (say, the digest of its source)."""
        held = self._objects.get(name)
        if held is not None and held[0] == key:
            return held[1]  # type: ignore[no-any-return]
        self.drop(name)
        made = make()
        self._objects[name] = (key, made)
        return made

    def drop(self, name: str) -> None:
        """Forget `name`, closing the object if it can be closed; its memory is free for what comes next.

        A model whose forward methods were replaced refers to itself: without a collection it stays until Python's next
        one.
        """
        if name in self._objects:
            self._close(name)
            gc.collect()

    def close(self) -> None:
        """Drop everything, the newest object first."""
        for name in reversed(list(self._objects)):
            self._close(name)

    def _close(self, name: str) -> None:
        _, held = self._objects.pop(name)
        close = getattr(held, "close", None)
        if close is not None:
            close()


class Executor(Protocol):
    """An object that does independent parts of a stage's work."""

    def map(
        self, work: Callable[["StageContext[Any]", Item], T], context: "StageContext[Any]", items: Sequence[Item]
    ) -> list[T]:
        """Return results of `work` for every item, in the order of `items`.

        `work` is a module's function. It gets a context equal to `context` except for its cache, and returns picklable
        results. Raises what `work` raises.
        """
        ...

    def places(self, context: "StageContext[Any]") -> int:
        """Return how many parts it does at once; at least 1."""
        ...


class SerialExecutor:
    """An executor that does one item after another in this process."""

    def map(
        self, work: Callable[["StageContext[Any]", Item], T], context: "StageContext[Any]", items: Sequence[Item]
    ) -> list[T]:
        return [work(context, item) for item in items]

    def places(self, context: "StageContext[Any]") -> int:
        return 1


@dataclass(frozen=True)
class StageContext(Generic[Inputs]):
    """The input of a stage body `def update_policy(context: StageContext[UpdateInputs]) -> None`."""

    layout: Layout
    inputs: Inputs
    """The stage's part of params.yaml (tasks/core/config/stage_inputs.py), and nothing else."""
    key: str = ""
    """The iteration ("i003") or split ("test_normal") of a foreach stage; "" for other stages."""
    cache: ProcessCache = field(default_factory=ProcessCache)
    executor: Executor = field(default_factory=SerialExecutor)
    ranks: Callable[[Any, Path], None] | None = None
    """Runs the ranks of an update (an UpdateJob) on several machines, into a folder; None: this machine does."""
    version: str = ""
    """Digest of the code and the parameters that the stage was recorded to run with; "" where nobody recorded it."""
