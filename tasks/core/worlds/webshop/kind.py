"""The face of webshop."""

from functools import partial
from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import Demonstrations, PolicyRecipe, WorldKind
from tasks.core.worlds.webshop.settings import WebShopConfig


class WebShop(WorldKind[WebShopConfig]):
    """Buy what an instruction asks for."""

    settings = WebShopConfig

    def write(self, settings: WebShopConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.webshop.world import write_webshop

        write_webshop(settings, seed, folder)

    def open(self, settings: WebShopConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.webshop.world import open_webshop

        return open_webshop(settings, folder)

    def demonstrations(self) -> Demonstrations:
        from tasks.core.text_games.demonstrations import demonstrations
        from tasks.core.worlds.webshop.teacher import WebShopTeacher

        return partial(demonstrations, WebShopTeacher())

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.webshop.recipe import RECIPE

        return RECIPE


WORLD = WebShop()
