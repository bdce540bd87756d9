"""Recipes of embedded policies, which `python -m tasks.core.policies.train_base_policy` follows.

An embedded policy stands in for the instruct model that a full-size run downloads: it knows the agent's way of working
from perfect demonstrations, and the habits that reinforcement learning should break from imperfect demonstrations. Each
world has its own recipe.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Self

from tqdm import tqdm

from tasks.core.config.policy import WarmStart
from tasks.core.config.section import Section
from tasks.core.interfaces.world import Message
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import write_digests
from tasks.core.policies.supervised import (
    Example,
    Phase,
    SupervisedSettings,
    encode_conversation,
    in_random_order,
    train,
)
from tasks.core.records.files import replacing

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

OPENING = 2
"""Messages before the first demonstrated turn: system and user."""


class Recipe(Section):
    """The settings that decide the weights, besides the code and the world. A subclass trains a world's policy."""

    seed: int = 0
    sizes: TinyQwen2 = TinyQwen2()
    supervised: SupervisedSettings = SupervisedSettings()
    perfect_demonstrations: int = 10_000
    perfect_steps: int = 600
    imperfect_demonstrations: int = 4_000
    imperfect_steps: int = 200
    learning_rate: float = 4e-3
    """Learning rate of the perfect phase; the imperfect phase begins at half of it."""
    successes_alone: bool = False
    """Whether flawed demonstrations that fail are left out."""

    def variant(self, name: str) -> Self:
        """Return the recipe as one of the variants of `world_kind` follows it: what a gain must be compared with."""
        changes: dict[str, dict[str, object]] = {
            "": {},
            "imitation": {"imperfect_demonstrations": 0, "imperfect_steps": 0},
            "successes": {"successes_alone": True},
        }
        return self.model_copy(update=changes[name])

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        """Train the policy. Deterministic on one CPU thread."""
        raise NotImplementedError


def train_policy(
    recipe: Recipe, pieces: list[str], perfect: Iterable[list[Message]], imperfect: Iterable[list[Message]]
) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Train a new model, whose tokenizer has these pieces, first on perfect and then on imperfect demonstrations."""
    tokenizer = build_tokenizer(pieces, recipe.sizes.context_length)
    chat = ChatFormat(tokenizer)
    model = new_model(recipe.sizes, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, recipe.seed)
    phases = two_phases(examples_of(chat, perfect), examples_of(chat, imperfect), recipe)
    train(model, phases, recipe.supervised, recipe.seed)
    return model, tokenizer


def two_phases(perfect: Sequence[Example], imperfect: Sequence[Example], settings: Recipe | WarmStart) -> list[Phase]:
    """Return the two phases, all perfect demonstrations, then all imperfect ones; one without steps is left out."""
    rate = settings.learning_rate
    planned = (
        ("perfect", perfect, settings.perfect_steps, rate),
        ("imperfect", imperfect, settings.imperfect_steps, rate / 2),
    )
    return [Phase(name, in_random_order(examples), steps, rate) for name, examples, steps, rate in planned if steps]


def save(model: "Qwen2ForCausalLM", tokenizer: "Qwen2Tokenizer", folder: Path) -> None:
    """Write model, tokenizer and digests into `folder`, as transformers and vLLM read them; other files there stay."""
    with replacing(folder) as temporary:
        if folder.is_dir():
            copytree(folder, temporary)
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        write_digests(temporary)


def examples_of(chat: ChatFormat, conversations: Iterable[list[Message]]) -> list[Example]:
    """Return the conversations in the tokens of `chat`."""
    return [
        encode_conversation(chat, messages, OPENING)
        for messages in tqdm(conversations, unit="episode", desc="demonstrations")
    ]
