"""Recipes of the embedded policies of text games: with and without thinking, and phrases of one token each."""

import re
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tasks.core.interfaces.world import Message
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.text_games.demonstrations import UNKNOWN_ACTION, Teacher, demonstrations
from tasks.core.text_games.prompt import SYSTEM_PROMPT, opening, reminder, turn_text

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

_STATE = "\x00"
_FIXED = (
    *(
        "system\n",
        "user\n",
        "assistant\n",
        SYSTEM_PROMPT,
        "Reward:\n",
        "\n\nTurn ",
        "You have ",
        "-0.",
        "√",
        UNKNOWN_ACTION,
    ),
    *("<think>", "<answer>", "</answer>", " || ", ", ", "I choose ", " and ", ".</think><answer>"),
)
_DRAWN = 100


def phrases(teacher: Teacher) -> list[str]:
    """Return the game's vocabulary, its texts (split at states, numbers and names) and the names; sorted."""
    random, parts = Random(0), {*_FIXED, *teacher.vocabulary}
    for number in range(_DRAWN):
        rules = teacher.turns.model_copy(update={"thinking": number % 2 == 0})
        task = teacher.task(random)
        names = teacher.names(task)
        briefing = teacher.kind.briefing(task)
        texts = [message["content"] for message in opening(briefing, _STATE, rules)]
        texts += [turn_text(1, _STATE), "\n" + reminder(rules, 1), teacher.kind.start(task, 0).state.partition(":")[0]]
        between = re.compile("|".join([_STATE, r"\d+", *map(re.escape, names)]))
        grid = {texts[-1]} if "\n" in texts[-1] else set()
        parts |= {part for text in set(texts) - grid for part in between.split(text)} | set(names)
    return sorted(part for part in parts if part)


def grid_rows(conversations: Iterable[list[Message]]) -> list[str]:
    """Return the rows of all maps shown, each with its line break, sorted. States that are not maps have none.

    A map then takes six tokens instead of forty: episodes are shorter, and a tiny policy needs to see a row as a whole.
    """
    shown = (message["content"].partition("State:\n")[2] for messages in conversations for message in messages)
    grids = (text.partition("\nYou have ")[0].split("\n") for text in shown)
    return sorted({row + "\n" for rows in grids if len({*map(len, rows)}) == 1 < len(rows) for row in rows})


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
