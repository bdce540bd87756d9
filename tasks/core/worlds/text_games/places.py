"""Places of things on a map, as a thought names them: a tiny policy plans from what it has read off the rows.

data/base_policies/README.md says what that changes.
"""

from collections.abc import Mapping

_MOST = 8
PLACES = tuple(f"{row},{column}" for row in range(_MOST) for column in range(_MOST))
"""Row and column, from 0, of maps of up to 8 x 8."""


def places_text(state: str, marks: Mapping[str, str]) -> str:
    """Return each name with the first cell that shows one of its symbols: "I am at 1,2, the goal at 3,3. ".

    Raises ValueError for a map that shows none of them.
    """
    return ", ".join(f"{name} at {place(state, cell_of(state, symbols))}" for name, symbols in marks.items()) + ". "


def places_vocabulary(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the vocabulary of `places_text`, one token each."""
    return (*PLACES, *(f"{name} at " for name in marks), ". I choose ")


def place(state: str, cell: int) -> str:
    """Return row and column of the symbol at `cell` of a map's text."""
    row, column = state.count("\n", 0, cell), cell - state.rfind("\n", 0, cell) - 1
    return f"{row},{column}"


def cell_of(state: str, symbols: str) -> int:
    """Return the index of the first of `symbols` in a map's text. Raises ValueError if there is none."""
    for cell, symbol in enumerate(state):
        if symbol in symbols:
            return cell
    raise ValueError(f"a map without any of {symbols}")
