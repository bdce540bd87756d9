"""The face of τ²-bench."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import World
from tasks.core.interfaces.world_kind import PolicyRecipe, ScoredTrials, WorldKind
from tasks.core.interpreters import InterpreterRecipe
from tasks.core.worlds.tau2.settings import Tau2Config


class Tau2(WorldKind[Tau2Config]):
    """Serve a phone company's customers (a shop's, an airline's) by tool calls."""

    settings = Tau2Config
    own_splits: ClassVar[Mapping[str, tuple[Split, ...]]] = {"test": ("test_normal",), "base": ("train", "test_normal")}

    def write(self, settings: Tau2Config, seed: int, folder: Path) -> None:
        from tasks.core.worlds.tau2.world import write_tau2

        write_tau2(settings, seed, folder)

    def open(self, settings: Tau2Config, code_blocks: CodeBlocks, folder: Path) -> World:
        from tasks.core.worlds.tau2.world import open_tau2

        return open_tau2(settings, folder)

    def forget(self, settings: Tau2Config, task_ids: Iterable[str]) -> None:
        from tasks.core.chat_servers.paid_answers import PaidAnswers

        if settings.mode == "user" and settings.user.by == "model":
            with closing(PaidAnswers()) as paid:
                paid.drop(settings.user.named(task) for task in task_ids)

    def write_results(self, trials: ScoredTrials[Tau2Config]) -> None:
        from tasks.core.worlds.tau2.results import write_results

        write_results(trials)

    def interpreters(self) -> tuple[InterpreterRecipe, ...]:
        from tasks.core.worlds.tau2.interpreter import TAU2

        return (TAU2,)

    def recipe(self) -> PolicyRecipe:
        from tasks.core.worlds.tau2.recipe import RECIPE

        return RECIPE


WORLD = Tau2()
