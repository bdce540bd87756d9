"""The contract between a world and the agent loop.

A world offers tasks and opens episodes. An episode is a conversation: the agent's text goes in, an observation comes
out, until the world ends it. A world knows nothing of tokens, policies or training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from typing_extensions import TypedDict  # pydantic accepts only this TypedDict, up to Python 3.11

from tasks.core.config.splits import Split
from tasks.core.records.timings import ApiUsage


class Message(TypedDict):
    """One chat message, as a chat template takes it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Task:
    """One task: an initial state and an instruction.

    The three or four tasks of a scenario are variants of each other. A task without variants is a scenario of its own.
    """

    task_id: str
    scenario_id: str
    difficulty: int
    """1 to 3."""
    split: Split
    instruction: str


@dataclass(frozen=True)
class Observation:
    """The world's answer to one assistant turn."""

    text: str
    """Text shown to the agent as the next user message, cut when it is too long."""
    done: bool
    """Whether the episode ended by itself: the agent completed the task, gave up, or met a limit of the world's own. A
    world with limits ends its episodes itself: an episode cut at `max_turns` has no return.
    """
    failed: bool = False
    """Whether the turn's code raised an error or could not be parsed."""
    api_calls: tuple[str, ...] = ()
    """The APIs that the turn really called, in order, as `app.name`; from the world's own log."""
    failed_api_calls: tuple[str, ...] = ()
    """Those of `api_calls` that answered with an error."""
    code_blocks: int = 1
    """Number of code blocks in the turn (`world.code_blocks` sets which of them run)."""
    ending: str = ""
    """Text shown right after `text`, whole even where `text` is cut, such as a reminder of the rules."""
    reward: float | None = None
    """The turn's reward, in the world's own unit; None in worlds that judge whole episodes. A world gives a reward for
    every turn or for none.
    """


@dataclass(frozen=True)
class Evaluation:
    """The verdict on an episode: the task's unit tests. `passed` and `failed` hold their requirement texts."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    score: float | None = None
    """Quality in [0, 1], where a world grades more finely than by unit tests."""

    @property
    def success(self) -> bool:
        """Return True when every unit test passed (what TGC counts)."""
        return not self.failed

    @property
    def pass_share(self) -> float:
        """Return the share of unit tests that passed, in [0, 1]."""
        return len(self.passed) / (len(self.passed) + len(self.failed))

    @property
    def episode_return(self) -> float:
        """Return the return of an episode that ended by itself, in [0, 1]: the world's score, else the tests' share."""
        return self.pass_share if self.score is None else self.score


class WorldFault(Exception):  # noqa: N818 - the field's word: a fault of the world, not of the agent
    """A failure of the world itself (a process died, a server hung). The episode is void; it may be replaced."""


class ExecutionTimeout(Exception):  # noqa: N818
    """Code of the agent that ran over a hard limit.

    Its process was killed and the episode ends; the policy is at fault.
    """


class Episode(Protocol):
    """One live episode. Not thread-safe; different episodes may be stepped from different threads."""

    @property
    def prompt(self) -> list[Message]:
        """Return the opening messages (system, one-shot example, instruction)."""
        ...

    def step(self, text: str) -> Observation:
        """Play one assistant turn. Raises `WorldFault` or `ExecutionTimeout`; the episode must then be closed."""
        ...

    def evaluate(self) -> Evaluation:
        """Run the task's unit tests on the present state. May be called at any time before `close`."""
        ...

    def close(self) -> None:
        """Free the episode's processes and memory. Idempotent."""
        ...


class World(Protocol):
    """A source of tasks and episodes. Thread-safe."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in a fixed order. Raises ValueError for an unknown split."""
        ...

    def open(self, task_id: str, seed: int) -> Episode:
        """Start an episode. `seed` feeds the world's own randomness. Raises KeyError for an unknown task."""
        ...

    def close(self) -> None:
        """Free all processes. Idempotent."""
        ...


@runtime_checkable
class OfChance(Protocol):
    """A world that declares whether chance plays a part in it.

    For other worlds, a search assumes that equal turns lead to equal states.
    """

    @property
    def is_of_chance(self) -> bool:
        """Return whether a turn's effect depends on the episode's seed. The opening never does."""
        ...


@runtime_checkable
class ReadsThoughts(Protocol):
    """A world that declares whether it reads the thought of a turn. Other worlds get the answer alone."""

    @property
    def reads_thoughts(self) -> bool:
        """Return whether a turn must begin with `<think>...</think>`."""
        ...


@runtime_checkable
class Paying(Protocol):
    """A world that pays for part of its play: for a simulated user behind an API."""

    def take_usage(self) -> ApiUsage | None:
        """Return the tokens used and money paid since the last call; None: nothing in it is paid for."""
        ...


@runtime_checkable
class Demonstrating(Protocol):
    """A world that can also show how its tasks are solved. For engines that recite; no agent ever sees it."""

    def demonstration(self, task_id: str) -> list[str]:
        """Return the assistant turns of a solution, the last of which completes the task.

        Raises KeyError for an unknown task, ValueError when the solutions may not be shown.
        """
        ...
