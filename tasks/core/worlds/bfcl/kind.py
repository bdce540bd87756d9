"""The face of BFCL."""

from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import PackageVerdicts, ScoredRun, ScoredTrials, WorldKind
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.worlds.bfcl.settings import BfclConfig


class Bfcl(WorldKind[BfclConfig]):
    """Call functions over several turns of a user."""

    settings = BfclConfig

    def write(self, settings: BfclConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.bfcl.world import write_bfcl

        write_bfcl(seed, folder)

    def open(self, settings: BfclConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.bfcl.world import open_bfcl

        return open_bfcl(folder)

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        from tasks.core.worlds.bfcl.interpreter import BFCL

        return (BFCL,)

    def write_results(self, trials: ScoredTrials[BfclConfig]) -> None:
        from tasks.core.worlds.bfcl.export import write_trials

        write_trials(trials)

    def export(self, run: ScoredRun[BfclConfig]) -> PackageVerdicts:
        from tasks.core.worlds.bfcl.export import export

        return export(run)


WORLD = Bfcl()
