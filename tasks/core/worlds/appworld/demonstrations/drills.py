"""Copying exercises without meaning, which teach the policy to copy a name that it has never seen.

An instruct model copies any name. The embedded policy learns it here: from a text that is no task into calls that are
no API's, names of any two parts, none of which is reserved for dev or the tests. No exercise is seen twice, since a
policy that can learn names by heart does not copy them.
"""

from collections.abc import Callable, Sequence
from random import Random

from tasks.core.interfaces.world import Message
from tasks.core.worlds.appworld.demonstrations.renaming import random_name

_KEYS = ("first", "second", "third", "left", "right", "upper", "lower", "inner", "outer", "north", "south", "east")
_MOST = 5
_LIST_SHARE = 0.3
_LONGEST_LIST = 10
_JOINTS = (", ", "', '", " of ", ": ", "\n")
Names = Callable[[Random], str]
"""Draws a name."""


def drill(opening: Sequence[Message], random: Random, name: Names = random_name) -> list[Message]:
    """Return a conversation that begins like an episode: its constant messages, then an exercise instead of a task."""
    asked, copied = (_listed if random.random() < _LIST_SHARE else _keyed)(random, name)
    return [
        *opening[:-1],
        {"role": "user", "content": asked},
        {"role": "assistant", "content": f"```python\n{copied}\n```"},
    ]


def _keyed(random: Random, name: Names) -> tuple[str, str]:
    """Return a text of keys with values, and a call that passes some of them on."""
    pairs = [(key, _value(random, name)) for key in random.sample(_KEYS, random.randrange(2, _MOST + 1))]
    asked = random.sample(pairs, random.randrange(1, len(pairs) + 1))
    values = ", ".join(f"{key} {_shown(value, random)}" for key, value in pairs)
    code = ", ".join(f"{key}={value!r}" for key, value in asked)
    return f"Copy {' '.join(key for key, _ in asked)} of: {values}.", f"copy({code})"


def _listed(random: Random, name: Names) -> tuple[str, str]:
    """Return names in one order, and again in another: whatever the first part, the second follows from the text."""
    names = [name(random) for _ in range(random.randrange(4, _LONGEST_LIST + 1))]
    joint = random.choice(_JOINTS)
    return f"Copy all of: {joint.join(names)}.", joint.join(random.sample(names, len(names)))


def _value(random: Random, name: Names) -> str | int:
    return random.randrange(10, 100) if random.random() < 0.2 else name(random)


def _shown(value: str | int, random: Random) -> str:
    return (
        random.choice((f'"{value}"', f"{value}"))
        if isinstance(value, str)
        else random.choice((f"${value}", f"{value}"))
    )
