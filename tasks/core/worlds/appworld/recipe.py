"""The embedded policy of AppWorld: its tokens, and demonstrations on authored roots in the real engine, and drills.

The roots have their own seeds, names of train only, and every template that may be shown. The policy learns to copy
from drills, then to act from perfect demonstrations, and bad habits from imperfect ones. Every use of a demonstration
has other names. Tokens: each part of a name is one token, and so is a number or a parameter, since they must be copied.
All else may be merged, so that an episode is a few hundred tokens and the choices stand out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
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
from tasks.core.worlds.appworld.demonstrations.habits import GUESSES
from tasks.core.worlds.appworld.demonstrations.playing import Demonstration, play_demonstrations
from tasks.core.worlds.appworld.demonstrations.renaming import drill, renamed
from tasks.core.worlds.appworld.inside.authoring import words
from tasks.core.worlds.appworld.kind import APPWORLD
from tasks.core.worlds.appworld.prepared_root import author_root
from tasks.core.worlds.appworld.prompt import REMINDER

_PARTS = frozenset(part for names in words.PAIRED_NAMES.values() for part in (*names.firsts, *names.seconds))
_FIRST_NAMES = (*words.FIRST_NAMES.firsts, *words.FIRST_NAMES.seconds)
COPIED = (
    _PARTS
    | {part.lower() for part in (*_FIRST_NAMES, *words.LAST_NAMES)}
    | {*words.LAST_NAMES, *(f" {name}" for name in words.LAST_NAMES)}
    | {*words.GENRES, *words.BRANDS, *words.RELATIONSHIPS, *words.FILE_KINDS}
)
"""Texts that an episode may have to copy, one token each; the first part of a name ends in the sign that joins both."""
_FIXED = frozenset([*COPIED, *GUESSES, *GUESSES.values(), *(f"{number:02d}" for number in range(100)), *"0123456789"])


def _alternatives(texts: list[str], depth: int = 2) -> str:
    """A pattern of these texts, the longest first, told apart by their first letters: a flat list is slow to match."""
    if not depth or min(map(len, texts)) == 0:
        return "|".join(re.escape(text) for text in sorted(texts, key=lambda text: (-len(text), text)))
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for text in texts:
        groups[text[0]].append(text[1:])
    return "|".join(f"{re.escape(first)}(?:{_alternatives(rest, depth - 1)})" for first, rest in sorted(groups.items()))


_WORD = re.compile(
    rf"(?<![A-Za-z_])(?:{_alternatives(sorted(COPIED))})(?:(?<=[ -])|(?![A-Za-z_]))|[A-Za-z_]+|\d\d|\d| +|\^+|.|\n",
    re.DOTALL,
)
_SPACES = ("    ", "        ", "            ", "^" * 2, "^" * 8, "^" * 32)
_OUTPUT, _ENDING = "Output:\n```\n", "\n```\n" + REMINDER
_ROLES = ("system\n", "user\n", "assistant\n", _OUTPUT, _ENDING, REMINDER, f"{_OUTPUT}Execution successful.{_ENDING}")
_LONGEST = 160


def pieces(conversations: Sequence[Sequence[Message]], opening: int, merges: int = 700, least: int = 40) -> list[str]:
    """The pieces of the tokenizer: `merges` merged phrases at most, each met `least` times or more.

    `opening`: messages of a prompt, of which all but the last are the same in every episode, and one piece each.
    """
    texts = Counter(
        part
        for conversation in conversations
        for message in conversation[opening - 1 :]
        for part in re.split(f"{re.escape(_OUTPUT)}|{re.escape(_ENDING)}", message["content"])
    )
    sequences = [(_WORD.findall(text), count) for text, count in sorted(texts.items())]
    common = [(parts, count) for parts, count in sequences if count > 1]
    found: Counter[str] = Counter()
    for parts, count in sequences:
        for part in parts:
            found[part] += count
    plain = {part for part, count in found.items() if count > 1 and not re.fullmatch(r"\^+| +|\n", part)}
    same = {message["content"] for message in conversations[0][: opening - 1]}
    phrases = [phrase for phrase in _merged(common, merges, least) if not _ends_in_a_name(phrase)]
    return sorted({*plain, *_FIXED, *_SPACES, *_ROLES, *same, *phrases})


def _ends_in_a_name(phrase: str) -> bool:
    """Return whether the phrase's last word begins a name: it would take that name's first token away."""
    last = re.search(r"(?<=[^A-Za-z])[A-Za-z]+$", phrase)
    return last is not None and any(part.startswith(last[0]) for part in _PARTS)


def _merged(sequences: Sequence[tuple[list[str], int]], merges: int, least: int) -> list[str]:
    """Byte-pair merging over words: the commonest pair of neighbours becomes one piece, again and again."""
    texts = [parts for parts, _ in sequences]
    counts: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def count(place: int, sign: int) -> None:
        for pair in pairwise(texts[place]):
            if not (_stays(pair[0]) or _stays(pair[1])):
                counts[pair] += sign * sequences[place][1]
                places[pair].add(place)

    for place in range(len(texts)):
        count(place, 1)
    made: list[str] = []
    queue = [(-times, pair) for pair, times in counts.items()]
    heapify(queue)
    while len(made) < merges and queue:
        times, pair = heappop(queue)
        if -times != counts[pair]:
            continue  # an entry from before other merges
        if -times < least:
            break
        made.append("".join(pair))
        touched: set[tuple[str, str]] = set()
        for place in sorted(places.pop(pair)):
            count(place, -1)
            touched.update(pairwise(texts[place]))
            texts[place] = _joined(texts[place], pair)
            count(place, 1)
            touched.update(pairwise(texts[place]))
        for other in sorted(touched):
            if counts[other] >= least:
                heappush(queue, (-counts[other], other))
    return made


def _stays(part: str) -> bool:
    return part in _FIXED or part.startswith("^") or len(part) > _LONGEST


def _joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


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
        demonstrations: list[Demonstration] = []
        python = python_executable(INTERPRETERS, APPWORLD)
        with TemporaryDirectory(prefix="appworld-demonstrations-") as folder:
            for seed in self.roots:
                root = Path(folder) / f"root{seed}"
                author_root(root, python, seed, {"demonstrations": self.tasks_per_root})
                played = play_demonstrations(root, self.perfect_demonstrations, self.imperfect_demonstrations)
                total = self.tasks_per_root * (self.perfect_demonstrations + self.imperfect_demonstrations)
                demonstrations += tqdm(played, total=total, unit="episode", desc=f"demonstrations of root {seed}")
        return policy_of(self, demonstrations)


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
