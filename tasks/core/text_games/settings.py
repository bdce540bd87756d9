"""Sections of params.yaml that text games share. Values are the paper's (arXiv 2504.20073) where it gives them, else
those of its code (RAGEN-AI/RAGEN, commit 5eb79b8).
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tasks.core.config.splits import Split, TaskCount, TaskCounts
from tasks.core.config.world_settings import WorldMetric, WorldSettings

FORMAT_PENALTY = 0.1
"""Taken from the reward of a turn without an answer, or with an unknown action. Scores are graded by it, so another one
would be another benchmark."""


class GameCounts(TaskCounts):
    """Tasks per split. The paper evaluates on 256 prompts; whole scenarios of three are 258."""

    train: TaskCount = 192
    dev: TaskCount = 48
    test_normal: TaskCount = 258
    test_challenge: TaskCount = 258


class TextTurns(WorldSettings):
    """The settings that all text games have: a form of the answers, a last turn, and tasks that are generated."""

    thinking: bool = True
    """Turns are <think>...</think><answer>...</answer>. False: <answer>...</answer> alone."""
    max_turns: int = Field(5, ge=1)
    """Turns after which an episode ends by itself."""
    counts: TaskCounts
    """Tasks per split."""

    @property
    def most_turns(self) -> int:
        """As `max_turns`."""
        return self.max_turns

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """As `counts`."""
        return self.counts.by_split


class TurnRules(TextTurns):
    """Rules by which the text of a turn becomes actions, and an episode ends by itself.

    `collection.limits.max_turns` must not be below `max_turns`, or episodes would be cut and have no return.
    """

    constants: ClassVar[Mapping[str, str]] = {"format_penalty": "0.1", "max_actions_per_turn": "5"}

    own_metric: ClassVar[WorldMetric] = WorldMetric("reward", "turn_rewards")
    """Reward of an episode, penalties included."""
    max_actions_per_turn: ClassVar[int] = 5
    """Actions of an answer, separated by `||`. Those beyond are not looked at."""

    max_actions: int = Field(10, ge=1)
    """Actions of a whole episode."""
    counts: GameCounts = GameCounts()
    """Tasks per split."""
