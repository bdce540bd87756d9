"""Places of things on a map, as a thought says them: a tiny policy plans by what it has read off the rows.

What that changed is measured in data/base_policies/README.md.
"""

from collections.abc import Mapping

_MOST = 8
PLACES = tuple(f"{row},{column}" for row in range(_MOST) for column in range(_MOST))
"""Row and column, from 0, of maps of up to 8 x 8."""


def places_text(state: str, marks: Mapping[str, str]) -> str:
    """Each name and the place of the first cell that shows one of its symbols: "I am at 1,2, the goal at 3,3. ".

    Raises ValueError for a map that shows none of them.
    """
    rows = state.split("\n")
    return ", ".join(f"{name} at {_place(rows, symbols)}" for name, symbols in marks.items()) + ". "


def places_vocabulary(marks: Mapping[str, str]) -> tuple[str, ...]:
    """The vocabulary of `places_text`, one token each."""
    return (*PLACES, *(f"{name} at " for name in marks), ". I choose ")


def _place(rows: list[str], symbols: str) -> str:
    for number, row in enumerate(rows):
        for column, symbol in enumerate(row):
            if symbol in symbols:
                return f"{number},{column}"
    raise ValueError(f"a map without any of {symbols}")
