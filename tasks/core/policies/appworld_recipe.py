"""The embedded policy of AppWorld: demonstrations on authored roots, in the real engine, and copying drills.

The roots have their own seeds, words of train only, and every template that may be shown. Each episode is used several
times, each time with other names: to play an episode costs far more than to train on it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tqdm import tqdm

from tasks.core.interfaces.world import Message
from tasks.core.policies.architecture import TinyQwen2
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.worlds.appworld.demonstrations.drills import drills
from tasks.core.worlds.appworld.demonstrations.playing import Demonstration, play_demonstrations
from tasks.core.worlds.appworld.demonstrations.vocabulary import pieces, renamed
from tasks.core.worlds.appworld.interpreter import python_executable
from tasks.core.worlds.appworld.root import author_root

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

OPENING = 12
"""Messages of an AppWorld prompt; all except the last are the same in every episode."""


class AppWorldRecipe(Recipe):
    """A recipe whose `perfect_demonstrations` and `imperfect_demonstrations` count the plays of each task."""

    roots: tuple[int, ...] = (101, 102)
    """Seeds of the demonstrations' worlds."""
    tasks_per_root: int = 258
    copies: int = 5
    """Uses of each episode, all except the first with other names."""
    drills: int = 4_000


APPWORLD_RECIPE = AppWorldRecipe(
    sizes=TinyQwen2(layers=3),
    supervised=SupervisedSettings(),
    perfect_demonstrations=1,
    imperfect_demonstrations=1,
    perfect_steps=500,
    imperfect_steps=150,
    rounds=2,
)


def make_appworld_policy(recipe: AppWorldRecipe) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Author roots, play demonstrations, train. Deterministic on one CPU thread.

    Raises as `author_root` and the engine do.
    """
    with TemporaryDirectory(prefix="appworld-demonstrations-") as folder:
        return policy_of(recipe, list(_demonstrations(recipe, Path(folder))))


def policy_of(
    recipe: AppWorldRecipe, demonstrations: Sequence[Demonstration]
) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
    """Train a policy on demonstrations that were played already."""
    perfect = [played.messages for played in demonstrations if not played.imperfect]
    imperfect = [played.messages for played in demonstrations if played.imperfect]
    exercises = list(drills(perfect[0][:OPENING], recipe.drills, recipe.seed))
    tokens = pieces([*perfect, *imperfect, *exercises], OPENING)
    return train_policy(
        recipe,
        tokens,
        [*_copies(perfect, recipe), *exercises],
        [*_copies(imperfect, recipe), *exercises[: recipe.drills // 2]],
        OPENING,
    )


def _demonstrations(recipe: AppWorldRecipe, folder: Path) -> Iterator[Demonstration]:
    for seed in recipe.roots:
        root = folder / f"root{seed}"
        author_root(root, python_executable(), seed, {"demonstrations": recipe.tasks_per_root})
        played = play_demonstrations(root, recipe.perfect_demonstrations, recipe.imperfect_demonstrations)
        total = recipe.tasks_per_root * (recipe.perfect_demonstrations + recipe.imperfect_demonstrations)
        yield from tqdm(played, total=total, unit="episode", desc=f"demonstrations of root {seed}")


def _copies(episodes: Sequence[list[Message]], recipe: AppWorldRecipe) -> list[list[Message]]:
    return [
        episode if copy == 0 else renamed(episode, OPENING, Random(f"{recipe.seed}:{index}:{copy}"))
        for index, episode in enumerate(episodes)
        for copy in range(recipe.copies)
    ]
