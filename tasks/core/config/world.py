"""The `world` section of params.yaml."""

import datetime
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from tasks.core.config.bfcl import BfclConfig
from tasks.core.config.openenv import OpenEnvConfig
from tasks.core.config.scienceworld import ScienceWorldConfig
from tasks.core.config.section import NamedSection
from tasks.core.config.splits import TaskCount, TaskCounts
from tasks.core.config.text_games import BanditConfig, FrozenLakeConfig, SokobanConfig, WebShopConfig
from tasks.core.config.world_settings import WorldSettings

CodeBlocks = Literal["first", "first_or_bare", "all"]


class AuthoredCounts(TaskCounts):
    """Tasks per split of an authored AppWorld root."""

    train: TaskCount = 36
    dev: TaskCount = 18
    test_normal: TaskCount = 36
    test_challenge: TaskCount = 36


class AppWorldConfig(WorldSettings):
    """Origin of AppWorld's tasks."""

    source: Literal["official", "authored"] = "authored"
    """Origin of the tasks. official: the downloaded data at `root`; authored: scenarios of our own, generated from
    `world.seed`."""
    root: Path | None = None
    """Folder that holds the official `data` folder. null when authored."""
    counts: AuthoredCounts = AuthoredCounts()
    """Tasks per split of an authored root. An official root has the tasks that it has."""
    denylist: tuple[str, ...] = ()
    """Ids of broken tasks, which no split offers. An id that the data does not list is logged and is no error, so that
    the ids that are known to be broken can be named whatever the data. apple/ml-loop names 3ab5b8b_3 and 37a8675_1,
    both of dev, and then plays them all the same."""
    engine: Literal["pool", "official"] = "pool"
    """How tasks are held. pool: warm forked processes, agents' code apart from the data; official: the package's HTTP
    server."""
    official_rule: bool = False
    """Judge the end of a task as the package does. It counts a task without a question as solved although the agent
    ended it with status "fail"."""
    demonstrated_turns: int | None = Field(8, ge=1)
    """Most turns of a recited solution. The last one, which completes the task, is not counted. The solution's
    top-level statements are divided evenly among them. The paper's usual episode has 8. null: a turn for each
    statement, as the LOOP paper's SFT-GT has it."""
    reminder: Literal["rules", "task"] = "rules"
    """End of every observation. The rules in short, or the whole task once more, as in apple/ml-loop (the supervisor's
    name, address and number, and the instruction)."""

    @property
    def task_counts(self) -> AuthoredCounts | None:
        """Those of an authored root; those of official data are the benchmark's own."""
        return self.counts if self.source == "authored" else None

    @model_validator(mode="after")
    def _root_fits_source(self) -> Self:
        if (self.source == "official") != (self.root is not None):
            raise ValueError("root must name the data when source is official, and be null when it is authored")
        return self


class PocketworldConfig(WorldSettings):
    """Size and hardness of pocketworld."""

    scale: int = Field(1, ge=1, le=20)
    """Scenarios of every split and difficulty, times this; 1: the paper's numbers (35, 20, 56 and 139)."""
    chain: int = Field(1, ge=1, le=3)
    """Requests in one task, each over apps of its own. A policy that meets one of them with probability p succeeds with
    about p to this power: rarer success of the base policy, longer episodes, more to learn."""
    chained_share: float = Field(1.0, ge=0, le=1)
    """Share of each split's scenarios whose tasks are chained. The others have one request."""


WorldName = Literal[
    "pocketworld", "appworld", "bandit", "bfcl", "frozen_lake", "openenv", "sokoban", "webshop", "scienceworld"
]
STANDING_DATES: dict[WorldName, datetime.date] = {"appworld": datetime.date(2023, 5, 18)}
"""The day on which the clock of a world stands."""


class WorldSection(NamedSection):
    """The knobs that every world has. A subclass adds the section of its world, under the world's name."""

    default_name: ClassVar = "pocketworld"

    name: WorldName
    """Name of the world. The section of this name holds its knobs."""
    seed: int = 2502
    """Seed of the tasks, apart from the run's seed: the tasks are part of the world."""
    code_blocks: CodeBlocks = "first"
    """Code blocks of a turn that run. first, or all as one text, by apple/ml-loop's very rule
    (`tasks.core.worlds.code_blocks`). A turn with several is counted as such either way. first_or_bare: a turn without
    any fence is code as a whole, as clients of a served world send it that take the fences off."""

    @property
    def settings(self) -> WorldSettings:
        """The section of the world that is played."""
        raise NotImplementedError


class PocketworldSection(WorldSection):
    """The section `world` of a run in pocketworld."""

    name: Literal["pocketworld"] = "pocketworld"
    pocketworld: PocketworldConfig = PocketworldConfig()

    @property
    def settings(self) -> PocketworldConfig:
        """Knobs of pocketworld."""
        return self.pocketworld


class AppWorldSection(WorldSection):
    """The section `world` of a run in appworld."""

    name: Literal["appworld"] = "appworld"
    appworld: AppWorldConfig = AppWorldConfig()

    @property
    def settings(self) -> AppWorldConfig:
        """Knobs of appworld."""
        return self.appworld


class BanditSection(WorldSection):
    """The section `world` of a run in bandit."""

    name: Literal["bandit"] = "bandit"
    bandit: BanditConfig = BanditConfig()

    @property
    def settings(self) -> BanditConfig:
        """Knobs of bandit."""
        return self.bandit


class BfclSection(WorldSection):
    """The section `world` of a run in bfcl."""

    name: Literal["bfcl"] = "bfcl"
    bfcl: BfclConfig = BfclConfig()

    @property
    def settings(self) -> BfclConfig:
        """Knobs of bfcl."""
        return self.bfcl


class FrozenLakeSection(WorldSection):
    """The section `world` of a run in frozen_lake."""

    name: Literal["frozen_lake"] = "frozen_lake"
    frozen_lake: FrozenLakeConfig = FrozenLakeConfig()

    @property
    def settings(self) -> FrozenLakeConfig:
        """Knobs of frozen_lake."""
        return self.frozen_lake


class OpenEnvSection(WorldSection):
    """The section `world` of a run in openenv."""

    name: Literal["openenv"] = "openenv"
    openenv: OpenEnvConfig = OpenEnvConfig()

    @property
    def settings(self) -> OpenEnvConfig:
        """Knobs of openenv."""
        return self.openenv


class SokobanSection(WorldSection):
    """The section `world` of a run in sokoban."""

    name: Literal["sokoban"] = "sokoban"
    sokoban: SokobanConfig = SokobanConfig()

    @property
    def settings(self) -> SokobanConfig:
        """Knobs of sokoban."""
        return self.sokoban


class WebShopSection(WorldSection):
    """The section `world` of a run in webshop."""

    name: Literal["webshop"] = "webshop"
    webshop: WebShopConfig = WebShopConfig()

    @property
    def settings(self) -> WebShopConfig:
        """Knobs of webshop."""
        return self.webshop


class ScienceWorldSection(WorldSection):
    """The section `world` of a run in scienceworld."""

    name: Literal["scienceworld"] = "scienceworld"
    scienceworld: ScienceWorldConfig = ScienceWorldConfig()

    @property
    def settings(self) -> ScienceWorldConfig:
        """Knobs of scienceworld."""
        return self.scienceworld


WorldConfig = Annotated[
    Annotated[PocketworldSection, Tag("pocketworld")]
    | Annotated[AppWorldSection, Tag("appworld")]
    | Annotated[BanditSection, Tag("bandit")]
    | Annotated[BfclSection, Tag("bfcl")]
    | Annotated[FrozenLakeSection, Tag("frozen_lake")]
    | Annotated[OpenEnvSection, Tag("openenv")]
    | Annotated[SokobanSection, Tag("sokoban")]
    | Annotated[WebShopSection, Tag("webshop")]
    | Annotated[ScienceWorldSection, Tag("scienceworld")],
    Discriminator(WorldSection.name_of),
]
"""The section `world`: of the world that `name` says, and only that."""


def world_section(name: WorldName) -> WorldConfig:
    """Return the section of this world with its defaults. Raises ValidationError for another name."""
    section: WorldConfig = TypeAdapter(WorldConfig).validate_python({"name": name})
    return section
