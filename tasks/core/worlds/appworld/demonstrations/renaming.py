"""An episode with other names, and exercises that teach a policy to copy names.

To play an episode costs far more than to train on it again under other names. An instruct model copies any name; the
embedded policy learns it from drills: from a text that is no task into calls that are no API's, names of any two parts,
none of which is reserved for dev or the tests. No exercise is seen twice, since a policy that can learn names by heart
does not copy them."""

import re
from collections.abc import Iterable, Sequence
from random import Random

from tasks.core.interfaces.world import Message
from tasks.core.worlds.appworld.inside.authoring import words

_OWN_LIST = 0.5
"""How often both parts of a new name are from the old name's list; otherwise they are from any two lists like it."""
_FIRST_NAMES = "first names"
_WITH_HYPHENS = ("folders", "file names")
_OTHERS = tuple(name for name in words.PAIRED_NAMES if name not in (_FIRST_NAMES, *_WITH_HYPHENS))
_KEPT_NUMBERS = frozenset({"20", "23"})
"""Numbers that are not a task's own: the size of a page, and the year in which all tasks play."""


def _any_of(parts: Iterable[str]) -> str:
    return "|".join(re.escape(part) for part in sorted(set(parts), key=lambda part: (-len(part), part)))


_LIST_OF_SECOND = {second: name for name, names in words.PAIRED_NAMES.items() for second in names.seconds}
_NAME = re.compile(
    f"({_any_of(part for names in words.PAIRED_NAMES.values() for part in names.firsts)})({_any_of(_LIST_OF_SECOND)})"
)
_NUMBER = re.compile(r"(?<!\d)\d\d(?!\d)")


def renamed(conversation: Sequence[Message], opening: int, random: Random) -> list[Message]:
    """Return the episode with other names and numbers throughout, none of them reserved for dev or the tests.

    `opening`: messages of the prompt; the last of them holds the task.
    """
    told = conversation[opening - 1 :]
    table = {
        **_other_names("\n".join(message["content"] for message in told), random),
        **_other_last_names(random),
        **_other_numbers(told[0]["content"].rpartition("Task: ")[2], random),
    }
    old = re.compile(rf"(?<![A-Za-z\d])(?:{_any_of(table)})(?![A-Za-z\d])")
    changed: list[Message] = [
        {"role": message["role"], "content": old.sub(lambda match: table[match[0]], message["content"])}
        for message in told
    ]
    return [*conversation[: opening - 1], *changed]


def _other_names(text: str, random: Random) -> dict[str, str]:
    table: dict[str, str] = {}
    for first, second in dict.fromkeys(_NAME.findall(text)):
        name, new = _LIST_OF_SECOND[second], ""
        while not new or new in table.values():
            new = random_name(random, name if random.random() < _OWN_LIST else None, _lists_like(name))
        table[first + second] = new
        if name == _FIRST_NAMES:
            table[(first + second).lower()] = new.lower()
    return table


def _lists_like(name: str) -> Sequence[str]:
    """Return the lists whose parts may be mixed: the same sign joins them, and they stand in the same places."""
    return next((lists for lists in ((_FIRST_NAMES,), _WITH_HYPHENS) if name in lists), _OTHERS)


def _other_last_names(random: Random) -> dict[str, str]:
    table = dict(zip(words.LAST_NAMES, random.sample(words.LAST_NAMES, len(words.LAST_NAMES)), strict=True))
    return table | {old.lower(): new.lower() for old, new in table.items()}


def _other_numbers(task: str, random: Random) -> dict[str, str]:
    return {
        number: f"{random.randrange(10, 100)}"
        for number in dict.fromkeys(_NUMBER.findall(task))
        if number not in _KEPT_NUMBERS and number >= "10"
    }


def random_name(random: Random, own: str | None = None, lists: Sequence[str] = tuple(words.PAIRED_NAMES)) -> str:
    """Return a name of train's share of the list `own`, or a name whose parts are from any two of `lists`."""
    while True:
        first = random.choice(words.PAIRED_NAMES[own or random.choice(lists)].firsts)
        second = random.choice(words.PAIRED_NAMES[own or random.choice(lists)].seconds)
        if not is_reserved(first, second):
            return first + second


def is_reserved(first: str, second: str) -> bool:
    """Return whether the two parts together are a name of dev or of the tests."""
    names = words.PAIRED_NAMES[_LIST_OF_SECOND[second]]
    return first in names.firsts and names.share(first, second) != "train"


def reserved_names(text: str) -> set[str]:
    """Return the names of dev and of the tests that a text holds."""
    return {first + second for first, second in _NAME.findall(text) if is_reserved(first, second)}


_KEYS = ("first", "second", "third", "left", "right", "upper", "lower", "inner", "outer", "north", "south", "east")
_MOST = 5
_LIST_SHARE = 0.3
_LONGEST_LIST = 10
_JOINTS = (", ", "', '", " of ", ": ", "\n")


def drill(opening: Sequence[Message], random: Random) -> list[Message]:
    """Return a conversation that begins like an episode: its constant messages, then an exercise instead of a task."""
    asked, copied = (_listed if random.random() < _LIST_SHARE else _keyed)(random)
    return [
        *opening[:-1],
        {"role": "user", "content": asked},
        {"role": "assistant", "content": f"```python\n{copied}\n```"},
    ]


def _keyed(random: Random) -> tuple[str, str]:
    """Return a text of keys with values, and a call that passes some of them on."""
    pairs = [(key, _value(random)) for key in random.sample(_KEYS, random.randrange(2, _MOST + 1))]
    asked = random.sample(pairs, random.randrange(1, len(pairs) + 1))
    values = ", ".join(f"{key} {_shown(value, random)}" for key, value in pairs)
    code = ", ".join(f"{key}={value!r}" for key, value in asked)
    return f"Copy {' '.join(key for key, _ in asked)} of: {values}.", f"copy({code})"


def _listed(random: Random) -> tuple[str, str]:
    """Return names in one order, and again in another: whatever the first part, the second follows from the text."""
    names = [random_name(random) for _ in range(random.randrange(4, _LONGEST_LIST + 1))]
    joint = random.choice(_JOINTS)
    return f"Copy all of: {joint.join(names)}.", joint.join(random.sample(names, len(names)))


def _value(random: Random) -> str | int:
    return random.randrange(10, 100) if random.random() < 0.2 else random_name(random)


def _shown(value: str | int, random: Random) -> str:
    return random.choice((f'"{value}"' if isinstance(value, str) else f"${value}", f"{value}"))
