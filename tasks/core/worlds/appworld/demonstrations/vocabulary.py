"""The tokens of the embedded AppWorld policy: names of two tokens, and phrases of code merged into longer tokens.

Each part of a name is one token, and so is a number or a parameter, since they must be copied. All else may be merged,
so that an episode is a few hundred tokens and the choices stand out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from tasks.core.interfaces.world import Message
from tasks.core.worlds.appworld.demonstrations.habits import GUESSES
from tasks.core.worlds.appworld.inside.authoring import words
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
