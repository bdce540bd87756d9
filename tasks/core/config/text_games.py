"""Sections of params.yaml for the worlds of RAGEN (arXiv 2504.20073): games that a turn of text plays.

Their values are the paper's where it gives them, else those of its code (RAGEN-AI/RAGEN, commit 5eb79b8).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasks.core.config.splits import TaskCount, TaskCounts
from tasks.core.config.world_settings import WorldMetric, WorldSettings

Probability = Annotated[float, Field(ge=0, le=1)]


class GameCounts(TaskCounts):
    """Tasks per split. The paper evaluates on 256 prompts; whole scenarios of three are 258."""

    train: TaskCount = 192
    dev: TaskCount = 48
    test_normal: TaskCount = 258
    test_challenge: TaskCount = 258


class TurnRules(WorldSettings):
    """Rules by which the text of a turn becomes actions, and an episode ends by itself.

    `collection.limits.max_turns` must not be below `max_turns`, or episodes would be cut and have no return.
    """

    own_metric: ClassVar[WorldMetric] = WorldMetric("reward", "turn_rewards")
    """Reward of an episode, penalties included."""

    thinking: bool = True
    """Turns are <think>...</think><answer>...</answer>. False: <answer>...</answer> alone."""
    max_turns: int = Field(5, ge=1)
    """Turns after which an episode ends by itself."""
    max_actions: int = Field(10, ge=1)
    """Actions of a whole episode."""
    max_actions_per_turn: int = Field(5, ge=1)
    """Actions of an answer, separated by `||`. Those beyond are not looked at."""
    format_penalty: float = Field(0.1, ge=0)
    """Penalty of a turn without an answer, or with an unknown action. It is taken from the turn's reward."""
    counts: GameCounts = GameCounts()
    """Tasks per split."""

    @property
    def most_turns(self) -> int:
        """As `max_turns`."""
        return self.max_turns

    @property
    def task_counts(self) -> GameCounts:
        """As `counts`."""
        return self.counts


class BanditConfig(TurnRules):
    """Two arms whose names hint at what they pay: one pays a little for sure, the other seldom and much.

    A task is a pair of names and their order; luck is drawn from the rollout's seed. Solved: the arm that pays more on
    average was pulled. The three tasks of a scenario have the same names. Splits and difficulties: train and dev,
    difficulty 1, have Phoenix as the safe arm and Dragon as the risky one. test_normal, difficulty 2, reverses their
    meaning: a policy that learnt a name gets it wrong, so TGC there falls where training succeeds. It is no measure of
    progress, and the profile has promotion read test_challenge in its place, difficulty 3: Trader (safe) and Librarian
    (risky), names never trained on.
    """

    max_turns: int = Field(1, ge=1)
    """Turns of an episode."""
    max_actions: int = Field(1, ge=1)
    """Actions of a whole episode."""
    max_actions_per_turn: int = Field(1, ge=1)
    """Actions of an answer."""
    safe_reward: Probability = 0.15
    """Reward of the safe arm. 0.1 in RAGEN's code."""
    risky_reward: Probability = 1.0
    """Reward of the risky arm, where it pays."""
    risky_probability: Probability = 0.25
    """Chance that the risky arm pays."""


class FrozenLakeConfig(TurnRules):
    """Gymnasium's FrozenLake: walk over ice to the goal, past holes. On slippery ice two steps in three go sideways.

    A task is a map; where one slips is drawn from the rollout's seed. Solved: the goal was reached, for a reward of 1.
    Scenario: one drawing of ice and holes with three starts and goals. Difficulty: length of the shortest way, 1: up to
    2 steps, 2: 3 or 4, 3: 5 and more. train, dev and test_normal: maps of `size`, none twice. test_challenge: maps of
    `challenge_size` in new symbols (A . # * @ !).
    """

    size: int = Field(4, ge=2, le=16)
    """Cells along a side."""
    frozen: float = Field(0.8, gt=0, le=1)
    """Chance of a cell to be ice, not a hole."""
    slippery: bool = True
    """Steps may slip sideways."""
    success_rate: float = Field(1 / 3, gt=0, le=1)
    """Chance of a step on slippery ice to go where it was meant to. Chance of a step to go where it was meant to."""
    challenge_size: int = Field(5, ge=2, le=16)
    """Cells along a side in Test-C."""


class SokobanConfig(TurnRules):
    """Sokoban: push every box onto a target. Boxes cannot be pulled, so a wrong push may be the end.

    A task is a room that can be solved in at most `max_actions` moves. Reward: -0.1 a move, +1 a box that comes onto a
    target, -1 one that leaves it, +10 when all are there. No room comes twice, turned or mirrored ones included.
    train, dev and test_normal: 6x6 with one box; a scenario is one room in three orientations; difficulty by the
    shortest solution, 1: up to 4 moves, 2: 5 to 7, 3: 8 and more. test_challenge: a scenario is three variants, and the
    difficulty says which: 1 rooms of 6x6 in new symbols (W . G C B A @), 2 with new names of the actions, 3 rooms of
    8x8 with two boxes.
    """

    min_moves: int = Field(2, ge=1)
    """Least length of the shortest solution. The median of rooms drawn without it is 2."""


class WebShopConfig(TurnRules):
    """WebShop: buy what an instruction asks for, by `search[...]` and `click[...]`.

    Solved: the reward is 1, so type, attributes, options and price all fit. `source: generated` draws a catalogue and
    goals from `world.seed`. Scenario: three goals on products of one kind. Difficulty: options that are asked for, 1:
    none, 2: one, 3: two and more. train, dev and test_normal: other products of the same kinds; test_challenge: kinds
    of products that no other split asks for. `source: original` reads the downloaded files of the original in `root`:
    test_challenge is the category grocery, the other goals are divided by their place in a shuffle.
    """

    constants: ClassVar[Mapping[str, str]] = {"challenge_category": "grocery"}

    max_turns: int = Field(9, ge=1)
    """Turns of an episode."""
    max_actions: int = Field(9, ge=1)
    """Actions of a whole episode."""
    max_actions_per_turn: int = Field(1, ge=1)
    """Actions of an answer."""
    source: Literal["generated", "original"] = "generated"
    """Origin of catalogue and goals."""
    root: Path | None = None
    """Folder of the original's files. items_shuffle*.json, items_ins_v2*.json and items_human_ins.json; null when
    generated."""
    products: int = Field(1000, ge=600)
    """Size of a generated catalogue. Fewer would leave dev too few of a kind."""
    reward: Literal["graded", "strict"] = "graded"
    """How a purchase is rewarded. graded: by the share that fits. strict: 1 for what fits wholly, else 0, as RAGEN's
    paper has it."""
    counts: GameCounts = GameCounts(train=96, dev=30)
    """Tasks per split."""

    @model_validator(mode="after")
    def _root_fits_source(self) -> Self:
        if (self.source == "original") != (self.root is not None):
            raise ValueError("root must name the folder when source is original, and be null when it is generated")
        return self
