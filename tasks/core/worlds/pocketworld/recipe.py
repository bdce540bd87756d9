"""The recipe of pocketworld's embedded policy."""

from typing import TYPE_CHECKING

from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.worlds.pocketworld.authoring.vocabulary import vocabulary
from tasks.core.worlds.pocketworld.demonstrations import demonstrations
from tasks.core.worlds.pocketworld.episodes.episode import SYSTEM_PROMPT

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

PHRASES = (
    "system\n",
    "user\n",
    "assistant\n",
    SYSTEM_PROMPT,
    "```python\n",
    ".\n```python\n",
    "\n```",
    ")\n```",
    '")\n```',
    "]\n```",
    '"]\n```',
    "print(apis.api_docs.show_api_doc(app=",
    "apis.supervisor.passwords()[",
    "apis.supervisor.complete_task(",
    ".login(password=",
    "login(password)\n",
    "for x in ",
    " for x in ",
    '(id=x["id"]',
    "lambda x: x[",
    "x[",
    "apis.",
    "answer=",
    '="',
    '="dummy"',
    '")',
    '")\n',
    '"]',
    '"])',
    '"])\n',
    "])",
    '")]',
    '["',
    "()",
    ": id, ",
    "(id)",
    "(id)\n",
    "(id, ",
    "?)",
    "?, ",
    ", ",
    ": ",
    " -> [",
    "]\n",
    ")\n",
    "Execution successful.",
    "Execution failed. ",
    "Execution failed. ApiError: ",
    " with ",
    " and ",
    " the ",
    "the ",
    " every ",
    " to ",
    " in ",
    " a ",
    " an ",
    " of ",
    " takes ",
    " has no API ",
)
"""Code and messages that every episode repeats, as one token each: this shortens episodes and sharpens the choices."""


class PocketworldRecipe(Recipe):
    """The settings of pocketworld's policy."""

    chained_share: float = 0.0
    """Share of the demonstrations whose task has two requests."""

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        seed, share = self.seed, self.chained_share
        perfect = demonstrations(seed, self.perfect_demonstrations, imperfect=False, chained_share=share)
        imperfect = demonstrations(seed, self.imperfect_demonstrations, imperfect=True, chained_share=share)
        return train_policy(self, [*vocabulary(), *PHRASES], perfect, imperfect)


RECIPE = PocketworldRecipe()
