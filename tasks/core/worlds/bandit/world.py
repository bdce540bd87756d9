"""Tasks and game of the bandit. `BanditConfig` says what splits and difficulties mean."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Self

from pydantic import model_validator

from tasks.core.config.splits import SPLITS, Split
from tasks.core.config.world import CodeBlocks
from tasks.core.seeding import derive_seed
from tasks.core.text_games.episode import Briefing, GameRules
from tasks.core.text_games.task_files import GameTask, read_tasks, task_names, write_tasks
from tasks.core.text_games.world import TextGameWorld
from tasks.core.worlds.bandit.kind import BanditConfig

TRAINED, REVERSED, UNSEEN = ("Phoenix", "Dragon"), ("Dragon", "Phoenix"), ("Trader", "Librarian")
"""(safe arm, risky arm)."""
ARMS: dict[Split, tuple[int, tuple[str, str]]] = {
    "train": (1, TRAINED),
    "dev": (1, TRAINED),
    "test_normal": (2, REVERSED),
    "test_challenge": (3, UNSEEN),
}
"""By split: difficulty and arms."""


class BanditTask(GameTask):
    """A pair of arms, in the order in which the prompt names them."""

    safe: str
    risky: str
    risky_first: bool

    @model_validator(mode="after")
    def _arms_differ(self) -> Self:
        if self.safe.casefold() == self.risky.casefold() or not self.safe.strip() or not self.risky.strip():
            raise ValueError(f"the arms {self.safe!r} and {self.risky!r} need two different names")
        return self

    @property
    def arms(self) -> tuple[str, str]:
        """The arms in the order in which the prompt names them."""
        return (self.risky, self.safe) if self.risky_first else (self.safe, self.risky)


SAFE_REWARD, RISKY_REWARD, RISKY_PROBABILITY = 0.15, 1.0, 0.25
"""Rewards of the arms, and the chance that the risky one pays. The world is about their names: RAGEN pays 0.1 for the
safe one, and the order is the same."""


class Bandit:
    """A game of one pull."""

    def __init__(self, task: BanditTask, seed: int) -> None:
        self._task, self._random = task, Random(seed)
        self._names = {name.casefold(): name for name in task.arms}
        self.state = f"The arms are {task.arms[0]} and {task.arms[1]}."
        self.over = self.solved = False

    def understood(self, action: str) -> str | None:
        """Return the name of an arm, in any case."""
        return self._names.get(action.casefold())

    def play(self, action: str) -> float:
        """Pull the arm."""
        risky = action == self._task.risky
        lucky = self._random.random() < RISKY_PROBABILITY
        reward = (RISKY_REWARD if lucky else 0.0) if risky else SAFE_REWARD
        self.over, self.solved = True, risky  # 0.25 on average, which is more than 0.15
        self.state = f"{action}: {reward:g} points"
        return reward


class BanditKind:
    """A `GameKind` (see `tasks.core.text_games.world`)."""

    rules = GameRules("bandit", "pulled the arm that pays more on average", 0.0, RISKY_REWARD, of_chance=True)

    def briefing(self, task: BanditTask) -> Briefing:
        first_arm, second_arm = task.arms
        return Briefing(
            "You are playing a bandit game. Goal: maximise your total reward by choosing which arm to pull.\n"
            "Game rules:\n"
            f"1. There are 2 arms, named {first_arm} and {second_arm}.\n"
            "2. Each arm has its own reward distribution, related to its name.\n"
            "3. Analyse the symbolic meaning of each arm's name to guess how its reward distribution might behave.\n"
            "4. Which arm do you think is more likely to give higher rewards on average? "
            f"Answer <answer>{first_arm}</answer> or <answer>{second_arm}</answer>.",
            actions=task.arms,
        )

    def instruction(self, task: BanditTask) -> str:
        return f"Choose between {task.arms[0]} and {task.arms[1]}."

    def start(self, task: BanditTask, seed: int) -> Bandit:
        return Bandit(task, seed)

    def solution(self, task: BanditTask) -> Sequence[str]:
        return (task.risky,)


def write_bandit(config: BanditConfig, seed: int, folder: Path) -> None:
    """Generate the tasks of all splits."""
    write_tasks(folder, {split: _split(config, seed, split) for split in SPLITS})


def open_bandit(config: BanditConfig, code_blocks: CodeBlocks, folder: Path) -> TextGameWorld[BanditTask]:
    """Open the world of the tasks in `folder`. Raises ArtifactError naming file, line and rule."""
    return TextGameWorld(read_tasks(folder, BanditTask), BanditKind(), config)


def _split(config: BanditConfig, seed: int, split: Split) -> list[BanditTask]:
    difficulty, (safe, risky) = ARMS[split]
    random = Random(derive_seed(seed, "bandit", split))
    return [
        BanditTask(
            **task_names(split, index),
            difficulty=difficulty,
            split=split,
            safe=safe,
            risky=risky,
            risky_first=random.random() < 0.5,
        )
        for index in range(getattr(config.counts, split))
    ]
