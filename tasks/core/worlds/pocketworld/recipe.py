"""The recipe of pocketworld's embedded policy."""

from functools import partial
from typing import TYPE_CHECKING

from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.worlds.pocketworld.demonstrations import play_demonstrations
from tasks.core.worlds.pocketworld.episodes.episode import SYSTEM_PROMPT
from tasks.core.worlds.pocketworld.problems.templates import KNOWN_TEMPLATES
from tasks.core.worlds.pocketworld.problems.vocabulary import vocabulary

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

PHRASES = (
    "system\n", "user\n", "assistant\n", SYSTEM_PROMPT, "```python\n", ".\n```python\n", "\n```", ")\n```", '")\n```',
    "]\n```", '"]\n```', "print(apis.api_docs.show_api_doc(app=", "apis.supervisor.passwords()[",
    "apis.supervisor.complete_task(", ".login(password=", "login(password)\n", "for x in ", " for x in ",
    '(id=x["id"]', "lambda x: x[", "x[", "apis.", "answer=", '="', '="dummy"', '")', '")\n', '"]', '"])', '"])\n',
    "])", '")]', '["', "()", ": id, ", "(id)", "(id)\n", "(id, ", "?)", "?, ", ", ", ": ", " -> [", "]\n", ")\n",
    "Execution successful.", "Execution failed. ", "Execution failed. ApiError: ", " with ", " and ", " the ", "the ",
    " every ", " to ", " in ", " a ", " an ", " of ", " takes ", " has no API ",
)  # fmt: skip
"""Code and messages that every episode repeats, as one token each: this shortens episodes and sharpens the choices."""


class PocketworldRecipe(Recipe):
    """The settings of pocketworld's policy."""

    chained_share: float = 0.0
    """Share of the demonstrations whose task has two requests."""
    templates: tuple[str, ...] = tuple(known.name for known in KNOWN_TEMPLATES)
    """The task templates that are demonstrated."""

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        known = {template.name: template for template in KNOWN_TEMPLATES}
        shown = [known[name] for name in self.templates]
        play = partial(play_demonstrations, self.seed, chained_share=self.chained_share, templates=shown)
        perfect = (played.messages for played in play(self.perfect_demonstrations, imperfect=False))
        imperfect = (
            played.messages
            for played in play(self.imperfect_demonstrations, imperfect=True)
            if played.evaluation.success or not self.successes_alone
        )
        return train_policy(self, [*vocabulary(), *PHRASES], perfect, imperfect)


RECIPE = PocketworldRecipe()
