"""The face of AppWorld."""

from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import PackageVerdicts, PolicyRecipe, ScoredRun, ScoredTrials, WorldKind
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.worlds.appworld.settings import ROOTS, AppWorldConfig


class AppWorld(WorldKind[AppWorldConfig]):
    """Write Python against nine apps of a phone."""

    settings = AppWorldConfig
    kept_folders = (ROOTS,)

    def write(self, settings: AppWorldConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.appworld.root import prepare_root

        print(f"AppWorld root: {prepare_root(settings, seed, folder).summary}")

    def open(self, settings: AppWorldConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.appworld.opening import open_appworld

        return open_appworld(settings, code_blocks, folder)

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        from tasks.core.worlds.appworld.interpreter import APPWORLD

        return (APPWORLD,)

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.appworld.recipe import RECIPE

        return RECIPE

    def write_results(self, trials: ScoredTrials[AppWorldConfig]) -> None:
        from tasks.core.worlds.appworld.export import write_trials

        write_trials(trials)

    def export(self, run: ScoredRun[AppWorldConfig]) -> PackageVerdicts:
        from tasks.core.worlds.appworld.export import export

        return export(run)


WORLD = AppWorld()
