"""A world as an OpenEnv environment: what of an episode crosses the wire, and what does not.

The package's kit does sessions and protocol; an instance of `WorldEnvironment` is one session. The agent's turn goes in
as text, runs where it runs in training, and the observation comes out. Of the verdict there come success and score;
requirement texts, solutions and states of the world stay here.
"""

from collections.abc import Sequence
from dataclasses import asdict
from random import randrange
from typing import Any, cast

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, State
from openenv.core.env_server.types import Observation as WireObservation
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules
from tasks.core.config.splits import SPLITS, Split
from tasks.core.interfaces.world import Episode, Evaluation, ExecutionTimeout, Message, Observation, Task, World

MOST_CHARS = 1_000_000
"""Limit of a turn."""
_SEEDS = 2**31
_KINDS = {"train": "train", "dev": "validation"}


class RequestRefused(ValueError):  # noqa: N818
    """A request that names no task, or a key that a reset does not take; nothing was done."""


class ResetKeys(BaseModel):
    """The keys that a reset takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seed: int | None = None
    episode_id: str | None = None
    task_id: str | None = None
    split: str = "train"
    index: int | None = None


class Turn(Action):
    """One turn of the agent."""

    text: str = Field(max_length=MOST_CHARS, description="What the agent said, as a whole")


class TurnObservation(WireObservation):
    """The world's answer. Its `reward` is the turn's, where the world gives turns one; else the episode's return with
    the last turn, and none before.
    """

    text: str = Field("", description="To be shown to the agent as the next user message")
    messages: list[Message] = Field([], description="The opening messages of the episode; after a reset only")
    task_id: str = ""
    failed: bool = Field(False, description="The turn's code raised an error, or the turn could not be read")
    api_calls: list[str] = Field([], description="What the turn really called")
    success: bool | None = Field(None, description="Whether the task is solved; with the last turn only")
    score: float | None = Field(None, description="The episode's return in [0, 1]; with the last turn only")


class EpisodeState(State):
    """State of a session."""

    task_id: str = ""


class WorldEnvironment(Environment):
    """One session: an episode at a time of a world that all sessions share. It also offers the kit's Task API."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, world: World, name: str, version: str) -> None:
        super().__init__()
        self._world, self._name, self._version = world, name, version
        self._episode: Episode | None = None
        self._state = EpisodeState()

    def reset(self, **keys: Any) -> TurnObservation:
        """Begin an episode of the task `task_id`, or of the `index`-th of `split`, or of one that `seed` draws there.

        `keys` are those of `ResetKeys`. `seed` also feeds what is random in the world. Raises RequestRefused for a task
        that is not there and for other keys, which leaves the episode that is open as it is, and WorldFault.
        """
        wanted = _checked(keys)
        seed = randrange(_SEEDS) if wanted.seed is None else wanted.seed
        task_id = wanted.task_id or self._task_id(wanted.split, wanted.index, seed)
        if not any(task.task_id == task_id for split in SPLITS for task in self._world.tasks(split)):
            raise RequestRefused(f"unknown task {task_id!r}")
        self.close()
        self._episode = self._world.open(task_id, seed)
        self._state = EpisodeState(episode_id=wanted.episode_id, task_id=task_id)
        messages = self._episode.prompt
        return TurnObservation(text=messages[-1]["content"], messages=messages, task_id=task_id)

    def step(self, action: Turn, timeout_s: float | None = None, **_: Any) -> TurnObservation:
        """Play a turn. The last one closes the episode. Raises RequestRefused where none is open, WorldFault."""
        if self._episode is None:
            raise RequestRefused("no episode is open; reset first")
        self._state.step_count += 1
        verdict = None
        try:
            seen = self._episode.step(action.text)
            if seen.done:
                verdict = self._episode.evaluate()
        except ExecutionTimeout as error:
            seen, verdict = Observation(str(error), done=True, failed=True), Evaluation((), (str(error),))
        except BaseException:
            self.close()
            raise
        if verdict is not None:
            self.close()
        return _on_the_wire(seen, verdict)

    @property
    def state(self) -> EpisodeState:
        """State of the session."""
        return self._state

    def close(self) -> None:
        """Free what the episode has open. Idempotent."""
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.close()

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the server's description of itself."""
        return EnvironmentMetadata(
            name=self._name, description=f"{self._name}, a world of loopline", version=self._version
        )

    def list_splits(self) -> list[dict[str, str]]:
        """Return the splits, each with the kit's word for its kind."""
        return [{"name": split, "type": _KINDS.get(split, "test")} for split in SPLITS]

    def num_tasks(self, split: Split) -> int:
        """Number of tasks of a split. Raises IndexError, which the kit expects, for an unknown one."""
        return len(self._tasks(split))

    def list_tasks(self, split: Split) -> list[dict[str, Any]]:
        """Return all tasks of a split, each as `get_task` describes it."""
        return self.get_task_range(split)

    def get_task(self, split: Split, index: int) -> dict[str, Any]:
        """Return a task's description before it is played. Raises IndexError."""
        tasks = self._tasks(split)
        if not 0 <= index < len(tasks):
            raise IndexError(f"no task {index} in {split}, which has {len(tasks)}")
        return asdict(tasks[index])

    def get_task_range(self, split: Split, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return the tasks from `start` to before `stop`."""
        return [asdict(task) for task in self._tasks(split)[start:stop]]

    def _task_id(self, split: str, index: int | None, seed: int) -> str:
        try:
            of_split = cast(Split, split)
            number = seed % self.num_tasks(of_split) if index is None else index
            return str(self.get_task(of_split, number)["task_id"])
        except IndexError as error:
            raise RequestRefused(str(error)) from None

    def _tasks(self, split: Split) -> Sequence[Task]:
        if split not in SPLITS:
            raise IndexError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
        return self._world.tasks(split)


def _checked(keys: dict[str, Any]) -> ResetKeys:
    try:
        return ResetKeys.model_validate(keys)
    except ValidationError as error:
        takes = f"; it takes {', '.join(ResetKeys.model_fields)}"
        raise RequestRefused(f"reset: {'; '.join(broken_rules(error, ''))}{takes}") from None


def _on_the_wire(seen: Observation, verdict: Evaluation | None) -> TurnObservation:
    reward = seen.reward
    if verdict is not None and reward is None:
        reward = verdict.episode_return
    return TurnObservation(
        text=seen.text + seen.ending,
        done=seen.done,
        reward=reward,
        failed=seen.failed,
        api_calls=list(seen.api_calls),
        success=None if verdict is None else verdict.success,
        score=None if verdict is None else verdict.episode_return,
    )
