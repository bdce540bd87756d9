"""The `world` section of params.yaml."""

import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.core.config.bfcl import BfclConfig
from tasks.core.config.openenv import OpenEnvConfig
from tasks.core.config.scienceworld import ScienceWorldConfig
from tasks.core.config.section import Section
from tasks.core.config.task_counts import TaskCount
from tasks.core.config.text_games import BanditConfig, FrozenLakeConfig, SokobanConfig, WebShopConfig
from tasks.core.config.world_metric import WorldMetric

CodeBlocks = Literal["first", "first_or_bare", "all"]


class AuthoredCounts(Section):
    """Tasks per split of an authored AppWorld root."""

    train: TaskCount = 36
    dev: TaskCount = 18
    test_normal: TaskCount = 36
    test_challenge: TaskCount = 36


class AppWorldConfig(Section):
    """Origin of AppWorld's tasks."""

    source: Literal["official", "authored"] = "authored"
    """official: the downloaded data at `root`; authored: scenarios of our own, generated from `world.seed`."""
    root: Path | None = None
    """The folder that holds the official `data` folder; null when authored."""
    counts: AuthoredCounts = AuthoredCounts()
    """Task counts of an authored root; an official one has the tasks that it has."""
    denylist: tuple[str, ...] = ()
    """Ids of tasks that no split offers (broken ones). Those that the data does not list are said, and no error: so the
    ids that are known to be broken can be named whatever the data. apple/ml-loop names 3ab5b8b_3 and 37a8675_1, both of
    dev, and then plays them all the same."""
    engine: Literal["pool", "official"] = "pool"
    """pool: warm forked processes, agents' code apart from the data; official: the package's HTTP server."""
    official_rule: bool = False
    """Count a task without a question as solved although the agent ended it with status "fail", as the package does."""
    demonstrated_turns: int | None = Field(8, ge=1)
    """Most turns of a recited solution before the one that completes the task, its top-level statements shared evenly
    among them: the paper's usual episode has 8. null: a turn for each statement, as the LOOP paper's SFT-GT has it."""
    reminder: Literal["rules", "task"] = "rules"
    """The end of every observation: the rules in short, or the whole task once more, as in apple/ml-loop (the
    supervisor's name, address and number, and the instruction)."""

    @model_validator(mode="after")
    def _root_fits_source(self) -> Self:
        if (self.source == "official") != (self.root is not None):
            raise ValueError("root must name the data when source is official, and be null when it is authored")
        return self


class PocketworldConfig(Section):
    """Size and hardness of pocketworld."""

    scale: int = Field(1, ge=1, le=20)
    """Scenarios of every split and difficulty, times this; 1: the paper's numbers (35, 20, 56 and 139)."""
    chain: int = Field(1, ge=1, le=3)
    """Requests in one task, each over apps of its own. A policy that meets one of them with probability p succeeds with
    about p to this power: rarer success of the base policy, longer episodes, more to learn."""
    chained_share: float = Field(1.0, ge=0, le=1)
    """Share of the scenarios of each split whose tasks are chained; the others have one request."""


WorldName = Literal[
    "pocketworld", "appworld", "bandit", "bfcl", "frozen_lake", "openenv", "sokoban", "webshop", "scienceworld"
]
STANDING_DATES: dict[WorldName, datetime.date] = {"appworld": datetime.date(2023, 5, 18)}
"""The day on which the clock of a world stands."""


class WorldConfig(Section):
    """The world that the agent lives in."""

    name: WorldName = "pocketworld"
    seed: int = 2502
    """Seed of the scenario generator; the tasks are part of the world, so it is apart from the run's seed."""
    code_blocks: CodeBlocks = "first"
    """The code that a turn runs: its first code block, or all of them as one text, by apple/ml-loop's very rule
    (`tasks.core.worlds.code_blocks`). A turn with several is counted as such either way. first_or_bare: a turn without
    any fence is code as a whole, as clients of a served world send it that take the fences off."""
    pocketworld: PocketworldConfig = PocketworldConfig()
    """Read when `name` is pocketworld."""
    appworld: AppWorldConfig = AppWorldConfig()
    """Read when `name` is appworld; so are those below when it is theirs."""
    bandit: BanditConfig = BanditConfig()
    bfcl: BfclConfig = BfclConfig()
    frozen_lake: FrozenLakeConfig = FrozenLakeConfig()
    openenv: OpenEnvConfig = OpenEnvConfig()
    sokoban: SokobanConfig = SokobanConfig()
    webshop: WebShopConfig = WebShopConfig()
    scienceworld: ScienceWorldConfig = ScienceWorldConfig()

    @property
    def own_metric(self) -> WorldMetric | None:
        """The world's own measure of a policy; None where that is its unit tests."""
        return getattr(getattr(self, self.name), "own_metric", None)

    @property
    def most_turns(self) -> int:
        """Turns after which the world has ended an episode itself; 0 where it has no limit."""
        return int(getattr(getattr(self, self.name), "max_turns", 0))
