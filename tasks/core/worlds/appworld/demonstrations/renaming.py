"""An episode with other names: to play an episode costs far more than to train on it again under other names."""

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
