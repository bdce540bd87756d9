"""The recipe of embedded policies, which `python -m tasks.core.policies.train_base_policy` follows.

An embedded policy stands in for the instruct model that a full-size run downloads: it knows the agent's way of working
from perfect demonstrations, and the habits that reinforcement learning should break from imperfect demonstrations.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

from tqdm import tqdm

from tasks.core.config.policy import WarmStart
from tasks.core.config.section import Section
from tasks.core.interfaces.world import Message
from tasks.core.policies.architecture import TinyQwen2, new_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.digests import write_digests
from tasks.core.policies.supervised import (
    Example,
    Phase,
    SupervisedSettings,
    encode_conversation,
    in_random_order,
    train,
)
from tasks.core.policies.tokenizer import build_tokenizer
from tasks.core.records.files import replacing
from tasks.core.worlds.pocketworld.authoring.vocabulary import vocabulary
from tasks.core.worlds.pocketworld.demonstrations import demonstrations
from tasks.core.worlds.pocketworld.episodes.episode import SYSTEM_PROMPT
from tasks.core.worlds.text_games.demonstrations import Teacher
from tasks.core.worlds.text_games.demonstrations import demonstrations as play_games
from tasks.core.worlds.text_games.phrases import grid_rows, phrases

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

POCKETWORLD, APPWORLD = "pocketworld", "appworld"
OPENING = 2
"""Messages before the first demonstrated turn: system and user."""

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


class Recipe(Section):
    """The settings that decide the weights, besides the code and the world."""

    seed: int = 0
    sizes: TinyQwen2 = TinyQwen2()
    supervised: SupervisedSettings = SupervisedSettings()
    perfect_demonstrations: int = 10_000
    perfect_steps: int = 600
    imperfect_demonstrations: int = 4_000
    imperfect_steps: int = 200
    learning_rate: float = 4e-3
    """Learning rate of the perfect phase; the imperfect phase begins at half of it."""
    chained_share: float = 0.0
    """Share of pocketworld's demonstrations whose task has two requests."""


_SMALL_STEPS = SupervisedSettings(tokens_per_step=2048, tokens_per_forward=1024)
GAME_RECIPES = {
    "bandit": Recipe(
        supervised=_SMALL_STEPS,
        perfect_demonstrations=2_000,
        perfect_steps=120,
        imperfect_demonstrations=2_000,
        imperfect_steps=60,
    ),
    "frozen_lake": Recipe(
        sizes=TinyQwen2(layers=3),
        supervised=_SMALL_STEPS,
        perfect_demonstrations=20_000,
        perfect_steps=1_600,
        imperfect_demonstrations=2_000,
        imperfect_steps=60,
    ),
    "sokoban": Recipe(
        sizes=TinyQwen2(layers=3),
        supervised=_SMALL_STEPS,
        perfect_demonstrations=50_000,
        perfect_steps=3_500,
        imperfect_demonstrations=2_000,
        imperfect_steps=60,
    ),
    "webshop": Recipe(
        sizes=TinyQwen2(context_length=4096),
        supervised=SupervisedSettings(tokens_per_forward=2048),
        perfect_demonstrations=6_000,
        perfect_steps=1_000,
        imperfect_demonstrations=600,
        imperfect_steps=30,
    ),
}
"""Recipes of the text games."""


def make_policy(recipe: Recipe) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Train the embedded policy of pocketworld. Deterministic on one CPU thread."""
    seed, share = recipe.seed, recipe.chained_share
    perfect = demonstrations(seed, recipe.perfect_demonstrations, imperfect=False, chained_share=share)
    imperfect = demonstrations(seed, recipe.imperfect_demonstrations, imperfect=True, chained_share=share)
    return train_policy(recipe, [*vocabulary(), *PHRASES], perfect, imperfect)


def make_game_policy(recipe: Recipe, teacher: Teacher) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Train the embedded policy of a text game, with and without thinking. Deterministic on one CPU thread."""
    perfect = list(play_games(teacher, recipe.seed, recipe.perfect_demonstrations, imperfect=False))
    imperfect = list(play_games(teacher, recipe.seed, recipe.imperfect_demonstrations, imperfect=True))
    return train_policy(recipe, [*phrases(teacher), *grid_rows([*perfect, *imperfect])], perfect, imperfect)


def warm_start_phases(chat: ChatFormat, world: str, settings: WarmStart, seed: int) -> tuple[Phase, Phase]:
    """Return the phases of a warm start in `world`, pocketworld or a game of GAME_RECIPES, in the tokens of `chat`."""
    play: Callable[..., Iterable[list[Message]]]
    play = demonstrations if world == POCKETWORLD else partial(play_games, teacher_of(world))
    perfect = play(seed, settings.perfect_demonstrations, imperfect=False)
    imperfect = play(seed, settings.imperfect_demonstrations, imperfect=True)
    return _two_phases(chat, perfect, imperfect, settings)


def train_policy(
    recipe: Recipe,
    pieces: list[str],
    perfect: Iterable[list[Message]],
    imperfect: Iterable[list[Message]],
) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Train a new model, whose tokenizer has these pieces, first on perfect and then on imperfect demonstrations."""
    tokenizer = build_tokenizer(pieces, recipe.sizes.context_length)
    chat = ChatFormat(tokenizer)
    model = new_model(recipe.sizes, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, recipe.seed)
    train(model, _two_phases(chat, perfect, imperfect, recipe), recipe.supervised, recipe.seed)
    return model, tokenizer


def _two_phases(
    chat: ChatFormat,
    perfect: Iterable[list[Message]],
    imperfect: Iterable[list[Message]],
    settings: Recipe | WarmStart,
) -> tuple[Phase, Phase]:
    good, bad = (in_random_order(_examples(chat, episodes)) for episodes in (perfect, imperfect))
    return (
        Phase("perfect", good, settings.perfect_steps, settings.learning_rate),
        Phase("imperfect", bad, settings.imperfect_steps, settings.learning_rate / 2),
    )


def save(model: "Qwen2ForCausalLM", tokenizer: "Qwen2Tokenizer", folder: Path) -> None:
    """Write model, tokenizer and digests into `folder`, as transformers and vLLM read them; other files there stay."""
    with replacing(folder) as temporary:
        if folder.is_dir():
            copytree(folder, temporary)
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        write_digests(temporary)


def _examples(chat: ChatFormat, conversations: Iterable[list[Message]]) -> list[Example]:
    return [
        encode_conversation(chat, messages, OPENING)
        for messages in tqdm(conversations, unit="episode", desc="demonstrations")
    ]


def teacher_of(world: str) -> Teacher:
    """Return the teacher who demonstrates a game. Raises KeyError for a world without a teacher."""
    from tasks.core.worlds.bandit.teacher import BanditTeacher
    from tasks.core.worlds.frozen_lake.teacher import FrozenLakeTeacher
    from tasks.core.worlds.sokoban.teacher import SokobanTeacher
    from tasks.core.worlds.webshop.teacher import WebShopTeacher

    teachers: dict[str, Callable[[], Teacher]] = {
        "bandit": BanditTeacher,
        "frozen_lake": FrozenLakeTeacher,
        "sokoban": SokobanTeacher,
        "webshop": WebShopTeacher,
    }
    return teachers[world]()
