"""The face of WebShop: buy what is asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasks.core.config.kinds import Late
from tasks.core.config.world_settings import MeanEpisode
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.text_games.settings import GameCounts, TurnRules


class WebShopConfig(TurnRules):
    """WebShop: buy what an instruction asks for, by `search[...]` and `click[...]`.

    Solved: the reward is 1, so type, attributes, options and price all fit. `source: generated` draws a catalogue and
    goals from `world.seed`. Scenario: three goals on products of one kind. Difficulty: options that are asked for, 1:
    none, 2: one, 3: two and more. train, dev and test_normal: other products of the same kinds; test_challenge: kinds
    of products that no other split asks for. `source: original` reads the downloaded files of the original in `root`:
    test_challenge is the category grocery, the other goals are divided by their place in a shuffle.
    """

    mean_episode: ClassVar = MeanEpisode(400, 6, 40, 500, 0.001, "assumed")
    constants: ClassVar[Mapping[str, str]] = {
        **TurnRules.constants,
        "max_actions_per_turn": "1",
        "challenge_category": "grocery",
    }
    max_actions_per_turn: ClassVar[int] = 1

    max_turns: int = Field(9, ge=1)
    """Turns of an episode."""
    max_actions: int = Field(9, ge=1)
    """Actions of a whole episode."""
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

    @property
    def source_files(self) -> Path | None:
        """As `root`."""
        return self.root

    @model_validator(mode="after")
    def _root_fits_source(self) -> Self:
        if (self.source == "original") != (self.root is not None):
            raise ValueError("root must name the folder when source is original, and be null when it is generated")
        return self


WORLD = WorldKind(
    settings=WebShopConfig,
    write=Late("tasks.core.worlds.webshop.world:write_webshop"),
    open=Late("tasks.core.worlds.webshop.world:open_webshop"),
    demonstrations=Late("tasks.core.worlds.webshop.teacher:RECIPE.demonstrations"),
    recipe=Late("tasks.core.worlds.webshop.teacher:RECIPE"),
)
