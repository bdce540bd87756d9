"""Recipes of the embedded policies of text games: with and without thinking."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from tasks.core.interfaces.world import Message
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.text_games.demonstrations import Teacher, demonstrations
from tasks.core.text_games.phrases import grid_rows, phrases

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

SMALL_STEPS = SupervisedSettings(tokens_per_step=2048, tokens_per_forward=1024)


class GameRecipe(Recipe):
    """The settings of a game's policy. A subclass names its teacher."""

    teacher: ClassVar[Callable[[], Teacher]]
    """Makes who demonstrates the game."""

    def demonstrations(self, seed: int, count: int, *, imperfect: bool) -> Iterator[list[Message]]:
        """Yield scripted play for a warm start, as `WorldKind.demonstrations` has it."""
        return demonstrations(type(self).teacher(), seed, count, imperfect=imperfect)

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        teacher = type(self).teacher()
        perfect = list(demonstrations(teacher, self.seed, self.perfect_demonstrations, imperfect=False))
        flawed = demonstrations(
            teacher, self.seed, self.imperfect_demonstrations, imperfect=True, successes_alone=self.successes_alone
        )
        imperfect = list(flawed)
        return train_policy(self, [*phrases(teacher), *grid_rows([*perfect, *imperfect])], perfect, imperfect)
