"""The face of an engine: everything that the pipeline knows of it. See `EngineKind`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from tasks.core.config.engine import ENGINES, EngineSection, PaidModel, SharedDevice
from tasks.core.config.params import Params
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.interfaces.engine import Engine
from tasks.core.interfaces.world import World
from tasks.core.interpreters import InterpreterRecipe

S = TypeVar("S")


class EngineNeeds(NamedTuple):
    """The things that there are to open an engine with."""

    policy: PolicyConfig
    base_policy: Path
    """Folder of the base model."""
    world: World | None = None
    """The world that is played, for an engine that recites its solutions; None where nothing is played."""
    chat: Any = None
    """The base policy's ChatFormat (tasks.core.policies.chat_format); None where nothing is played."""
    memory: MemoryInputs | None = None
    """Inputs of an update's memory, for an engine whose servers share its device; None: there is no update."""


class EngineKind(ABC, Generic[S]):
    """The face of an engine. An engine is one folder, or one installed package, and this is all that others know of it.

    A folder `tasks/core/engines/NAME/` has a module `kind.py`, which ends with `ENGINE = ...`, an instance of a
    subclass of this class. A package names that value in an entry point of the group `loopline.engines`, under the
    engine's name:

        class Oracle(EngineKind[None]):
            '''Recite the world's own solutions.'''

            samples_policy = False

            def open(self, settings: None, needs: EngineNeeds) -> Engine:
                from tasks.core.recital import oracle_engine

                return oracle_engine(needs.world, needs.chat)

        ENGINE = Oracle()

    `open` is all that an engine needs; everything below it has a default. The module is imported whenever params.yaml
    is read, so it imports its settings and no torch, server or package of its own; what is heavy is imported by the
    methods. `settings` is the class of the section `engine.NAME` of params.yaml, whose docstrings are the meanings of
    its knobs; each method gets that section as it is in use.

    No code outside of the engine's folder names the engine, and it imports no other engine. What several engines share
    is a package below them, such as tasks/core/recital.py.
    """

    settings: ClassVar[type[Any] | None] = None
    """Class of the section `engine.NAME` of params.yaml; None: the engine has no knobs."""
    samples_policy: ClassVar[bool] = True
    """Whether it samples from the run's own policy, with log-probs that are the policy's."""
    in_process: ClassVar[bool] = True
    """Whether it runs in the process that plays; others are shared by all processes of a machine."""

    @abstractmethod
    def open(self, settings: S, needs: EngineNeeds) -> Engine:
        """Open the engine. Raises ValueError for what it cannot do, such as a world that has nothing to recite."""

    def check(self, settings: S, params: Params) -> None:
        """Raise ValueError, naming the knob, for parameters with which this engine cannot play."""

    def check_sampling(self, settings: S, section: str, temperature: float, top_k: int = 0, top_p: float = 1.0) -> None:
        """Raise ValueError, naming the knob of `section`, for a setting that this engine would not follow."""

    def forget(self, settings: S, task_ids: Iterable[str]) -> None:
        """Discard what was paid for on these tasks with these settings, because their result is written now."""

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        """Return the interpreters of its own that it makes on first use; `loopline doctor` lists them."""
        return ()

    def lacking(self, settings: S) -> Iterator[str]:
        """Yield what this machine lacks for the engine, each with its knob; `loopline doctor` lists it."""
        return iter(())

    def uses_cores(self, policy: PolicyConfig) -> bool:
        """Return whether several processes of a machine sample more in the same time."""
        return self.in_process

    def waits_for_update(self, settings: S) -> str | None:
        """Return why rollouts cannot be collected during an update; None: they can."""
        return None

    def price(self, settings: S) -> PaidModel | None:
        """Return what turns cost; None: nothing."""
        return None

    def devices(self, settings: S) -> int:
        """Return how many devices one replica spans."""
        return 1

    def context_length(self, settings: S) -> int | None:
        """Return the longest prompt plus turn where it is less than the model's; None: it is the model's."""
        return None

    def shared_device(self, settings: S) -> SharedDevice | None:
        """Return how its servers share a device with the update; None: it has none, and leaves the device."""
        return None

    def serving(self, source: str, revision: str | None, rank: int | None, adapter: str) -> str | None:
        """Return a command line that serves a policy: the adapter in the folder `adapter` on a base model.

        `rank` None: the model at `source` is the policy itself, and there is no adapter. None: there is no such line.
        """
        return None


def find_engine(name: str) -> EngineKind[Any]:
    """Return the face of the engine `name`. Raises UnknownKind."""
    found: EngineKind[Any] = ENGINES.find(name)
    return found


def open_engine(section: EngineSection, needs: EngineNeeds) -> Engine:
    """Open the engine that the section names. Raises ValueError for what it cannot do."""
    return find_engine(section.name).open(section.own, needs)
