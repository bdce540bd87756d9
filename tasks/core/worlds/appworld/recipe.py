"""The embedded policy of AppWorld: demonstrations on authored roots, in the real engine, and copying drills.

The roots have their own seeds, names of train only, and every template that may be shown. The policy learns to copy
from drills, then to act from perfect demonstrations, and bad habits from imperfect ones. Every use of a demonstration
has other names.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tqdm import tqdm

from tasks.core.interfaces.world import Message
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.recipe import Recipe
from tasks.core.policies.supervised import (
    Example,
    Phase,
    SupervisedSettings,
    encode_conversation,
    in_random_order,
    train,
)
from tasks.core.worlds.appworld.demonstrations.drills import drill
from tasks.core.worlds.appworld.demonstrations.playing import Demonstration, play_demonstrations
from tasks.core.worlds.appworld.demonstrations.renaming import renamed
from tasks.core.worlds.appworld.demonstrations.vocabulary import pieces
from tasks.core.worlds.appworld.kind import APPWORLD
from tasks.core.worlds.appworld.root import author_root

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

OPENING = 12
"""Messages of an AppWorld prompt; all except the last are the same in every episode."""
_DRILLS_IN_VOCABULARY = 200


class AppWorldRecipe(Recipe):
    """A recipe whose `perfect_demonstrations` and `imperfect_demonstrations` count the plays of each task."""

    roots: tuple[int, ...] = (101, 102)
    """Seeds of the demonstrations' worlds."""
    tasks_per_root: int = 258
    drill_steps: int = 280
    drill_learning_rate: float = 2e-3
    drill_share: float = 0.3
    """Share of drills among the examples of the other two phases."""
    imperfect_share: float = 1.0
    """Share of imperfect demonstrations in the imperfect phase, drills apart. At 0.6 the habits are a minority, which
    sampling at a low temperature never shows: then training changes rollouts at temperature 1 alone."""

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        """Author roots, play demonstrations, train. Raises as `author_root` and the engine do."""
        with TemporaryDirectory(prefix="appworld-demonstrations-") as folder:
            return policy_of(self, list(_demonstrations(self, Path(folder))))


RECIPE = AppWorldRecipe(
    sizes=TinyQwen2(layers=3, rope_theta=1e6, induction=True),
    supervised=SupervisedSettings(tokens_per_step=2048, tokens_per_forward=1024),
    perfect_demonstrations=1,
    imperfect_demonstrations=1,
    perfect_steps=1_100,
    imperfect_steps=250,
    learning_rate=3e-3,
)


def policy_of(
    recipe: AppWorldRecipe, demonstrations: Sequence[Demonstration]
) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Train a policy on demonstrations that were played already."""
    perfect = [played.messages for played in demonstrations if not played.imperfect]
    imperfect = [
        played.messages
        for played in demonstrations
        if played.imperfect and (played.success or not recipe.successes_alone)
    ]
    opening, random = perfect[0][:OPENING], Random(recipe.seed)
    exercises = [drill(opening, random) for _ in range(_DRILLS_IN_VOCABULARY)]
    tokenizer = build_tokenizer(pieces([*perfect, *imperfect, *exercises], OPENING), recipe.sizes.context_length)
    model = new_model(recipe.sizes, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, recipe.seed)
    drills, *others = _phases(recipe, ChatFormat(tokenizer), perfect, imperfect)
    train(model, [drills], recipe.supervised, recipe.seed)
    train(model, others, recipe.supervised, recipe.seed)
    return model, tokenizer


def _phases(
    recipe: AppWorldRecipe,
    chat: ChatFormat,
    perfect: Sequence[Sequence[Message]],
    imperfect: Sequence[Sequence[Message]],
) -> list[Phase]:
    rate, share = recipe.learning_rate, recipe.drill_share

    def stream(drill_share: float, imperfect_share: float) -> Callable[[Random], Iterator[Example]]:
        return lambda random: _examples(chat, perfect, imperfect, drill_share, imperfect_share, random)

    return [
        Phase("drills", stream(1.0, 0.0), recipe.drill_steps, recipe.drill_learning_rate),
        Phase("perfect", stream(share, 0.0), recipe.perfect_steps, rate),
        Phase("imperfect", stream(share, recipe.imperfect_share), recipe.imperfect_steps, rate / 2),
    ]


def _examples(
    chat: ChatFormat,
    perfect: Sequence[Sequence[Message]],
    imperfect: Sequence[Sequence[Message]],
    drill_share: float,
    imperfect_share: float,
    random: Random,
) -> Iterator[Example]:
    """Yield drills that are never the same, and demonstrations in random order under names that are never the same."""
    good, bad = (in_random_order(episodes)(random) for episodes in (perfect, imperfect))
    while True:
        if random.random() < drill_share:
            messages = drill(perfect[0][:OPENING], random)
        else:
            played = next(bad if random.random() < imperfect_share else good)
            messages = renamed(played, OPENING, random)
        yield encode_conversation(chat, messages, OPENING)


def _demonstrations(recipe: AppWorldRecipe, folder: Path) -> Iterator[Demonstration]:
    for seed in recipe.roots:
        root = folder / f"root{seed}"
        author_root(root, python_executable(INTERPRETERS, APPWORLD), seed, {"demonstrations": recipe.tasks_per_root})
        played = play_demonstrations(root, recipe.perfect_demonstrations, recipe.imperfect_demonstrations)
        total = recipe.tasks_per_root * (recipe.perfect_demonstrations + recipe.imperfect_demonstrations)
        yield from tqdm(played, total=total, unit="episode", desc=f"demonstrations of root {seed}")
