"""Copying exercises without meaning, which let the policy know the words that no demonstration has.

An instruct model has read every word before it meets a task; the embedded policy knows a word only if it has trained
on it. So it copies words of all shares, in random order and for random keys, from a text that is no task into calls
that are no API's. Instructions, apps and ways to solve a task occur in demonstrations alone, with train's words.
"""

from collections.abc import Iterator, Sequence
from random import Random

from tasks.core.interfaces.world import Message
from tasks.core.worlds.appworld.inside.authoring import words

_KEYS = ("first", "second", "third", "left", "right", "upper", "lower", "inner", "outer", "north", "south", "east")
_MOST = 5


def drills(opening: Sequence[Message], count: int, seed: int) -> Iterator[list[Message]]:
    """Conversations that begin like an episode: its constant messages, then an exercise instead of a task."""
    for number in range(count):
        random = Random(f"drill:{seed}:{number}")
        pairs = [(key, _word(random)) for key in random.sample(_KEYS, random.randrange(2, _MOST + 1))]
        asked = random.sample(pairs, random.randrange(1, len(pairs) + 1))
        told = ", ".join(f"{key} {_shown(word, random)}" for key, word in pairs)
        code = ", ".join(f"{key}={word!r}" for key, word in asked)
        keys = " ".join(key for key, _ in asked)
        yield [
            *opening[:-1],
            {"role": "user", "content": f"Copy {keys} of: {told}."},
            {"role": "assistant", "content": f"```python\ncopy({code})\n```"},
        ]


def _word(random: Random) -> str | int:
    if random.random() < 0.2:
        return random.randrange(1, 100)
    listed = random.choice(list(words.OPEN_LISTS.values()))
    if listed is words.TITLE_NOUNS:
        return f"{random.choice(words.TITLE_ADJECTIVES)} {random.choice(listed)}"
    return random.choice(listed)


def _shown(word: str | int, random: Random) -> str:
    return random.choice((f'"{word}"', f"{word}")) if isinstance(word, str) else random.choice((f"${word}", f"{word}"))
