"""The face of the environments of verifiers."""

from pathlib import Path

from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.worlds.verifiers.settings import VerifiersConfig


class Verifiers(WorldKind[VerifiersConfig]):
    """Play an environment that was written for verifiers."""

    settings = VerifiersConfig

    def write(self, settings: VerifiersConfig, seed: int, folder: Path) -> None:
        from tasks.core.worlds.verifiers.world import write_verifiers

        write_verifiers(settings, seed, folder)

    def open(self, settings: VerifiersConfig, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.verifiers.world import open_verifiers

        return open_verifiers(settings, folder)

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        from tasks.core.worlds.verifiers.interpreter import VERIFIERS

        return (VERIFIERS,)


WORLD = Verifiers()
