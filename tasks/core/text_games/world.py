"""A world of games: its tasks, and an episode on each."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from tasks.core.config.splits import Split
from tasks.core.interfaces.listed_tasks import ListedTasks
from tasks.core.interfaces.world import Task
from tasks.core.text_games.episode import Briefing, Game, GameEpisode, GameRules, answer_text
from tasks.core.text_games.settings import TurnRules
from tasks.core.text_games.task_files import GameTask

T = TypeVar("T", bound=GameTask)
S = TypeVar("S", bound=GameTask, contravariant=True)


class GameKind(Protocol[S]):
    """A kind of game: turns a task into a game. Thread-safe."""

    @property
    def rules(self) -> GameRules: ...

    def briefing(self, task: S) -> Briefing: ...

    def instruction(self, task: S) -> str:
        """Return the task in a few words, for reports."""
        ...

    def start(self, task: S, seed: int) -> Game:
        """Start a new game. Its randomness is drawn from `seed`."""
        ...

    def solution(self, task: S) -> Sequence[str]:
        """Return actions that solve the task regardless of chance. Raises ValueError if none are known."""
        ...


class TextGameWorld(ListedTasks[T]):
    """A `World`, `OfChance` and `Demonstrating` (see `tasks.core.interfaces.world`)."""

    def __init__(self, tasks: Mapping[Split, Sequence[T]], kind: GameKind[T], turns: TurnRules) -> None:
        self._kind, self._turns = kind, turns
        super().__init__(tasks, self._listed)

    def open(self, task_id: str, seed: int) -> GameEpisode:
        """Start an episode. Raises KeyError for an unknown task."""
        task = self.task(task_id)
        return GameEpisode(self._kind.start(task, seed), self._kind.briefing(task), self._kind.rules, self._turns)

    @property
    def is_of_chance(self) -> bool:
        """Whether chance decides; see `OfChance`."""
        return self._kind.rules.of_chance

    @property
    def reads_thoughts(self) -> bool:
        """Whether the world reads thoughts; see `ReadsThoughts`."""
        return self._turns.thinking

    def demonstration(self, task_id: str) -> list[str]:
        """Return a solution in as few turns as possible; see `Demonstrating`."""
        actions, size = list(self._kind.solution(self.task(task_id))), self._turns.max_actions_per_turn
        thought = "I do what solves it." if self._turns.thinking else None
        return [answer_text(actions[i : i + size], thought) for i in range(0, len(actions), size)]

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _listed(self, task: T) -> Task:
        instruction = self._kind.instruction(task)
        return Task(task.task_id, task.scenario_id, task.difficulty, task.split, instruction)
