"""The `world` section of params.yaml. The section of a world stands in its folder (tasks/core/worlds/)."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, SerializeAsAny

from tasks.core.config.kind_section import KindSection
from tasks.core.config.kinds import Kinds
from tasks.core.config.world_settings import WorldSettings

CodeBlocks = Literal["first", "first_or_bare", "all"]

WORLDS = Kinds("world", "tasks.core.worlds", "WORLD", "loopline.worlds")


class WorldSection(KindSection):
    """The knobs that every world has, and the section of the world that is played, under the world's name."""

    kinds: ClassVar = WORLDS
    default_name: ClassVar = "pocketworld"

    name: str
    """Name of the world. The section of this name holds its knobs."""
    seed: int = 2502
    """Seed of the tasks, apart from the run's seed: the tasks are part of the world."""
    code_blocks: CodeBlocks = "first"
    """Code blocks of a turn that run. first, or all as one text, by apple/ml-loop's very rule
    (`tasks.core.code_blocks`). A turn with several is counted as such either way. first_or_bare: a turn
    without a fence runs as code, because some clients of `loopline serve` strip fences."""

    @property
    def settings(self) -> WorldSettings:
        """The section of the world that is played."""
        settings: WorldSettings = self.own
        return settings


WorldConfig = Annotated[SerializeAsAny[WorldSection], BeforeValidator(WorldSection.chosen)]
"""The section `world`: of the world that `name` says, and only that."""
