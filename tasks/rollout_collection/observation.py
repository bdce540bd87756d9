"""Observations as text and token ids, cut to a budget."""

from collections.abc import Callable
from typing import NamedTuple

from tasks.core.policies.chat_format import ChatFormat

CUT_NOTE = "[output cut: {count} more lines]"
CUT_LINE_NOTE = "[output cut]"


class ShownObservation(NamedTuple):
    """An observation as the policy sees it."""

    text: str
    ids: list[int]
    """To append to the conversation: `ChatFormat.continuation_ids` of the text."""


def shown_observation(
    chat: ChatFormat, text: str, ending: str = "", *, closed: bool, max_tokens: int
) -> ShownObservation:
    """An observation, of whose text at most `max_tokens` stay.

    A longer text ends at a line break, or within its first line when that alone is too long, and a note says so; the
    note counts too. A budget smaller than the note leaves the note alone. `ending` follows whole and does not count.
    """

    def render(shown: str) -> ShownObservation:
        return ShownObservation(shown + ending, chat.continuation_ids(shown + ending, closed=closed))

    whole = render(text)
    if len(whole.ids) <= max_tokens:
        return whole
    budget = max_tokens + len(render("").ids)
    if len(whole.ids) <= budget:
        return whole

    lines = text.splitlines()
    kept = _longest(len(lines) - 1, lambda count: len(render(_first_lines(lines, count)).ids) <= budget)
    if kept > 0:
        return render(_first_lines(lines, kept))
    first = lines[0]
    kept = _longest(len(first), lambda count: len(render(first[:count] + CUT_LINE_NOTE).ids) <= budget)
    return render(first[:kept] + CUT_LINE_NOTE)


def _first_lines(lines: list[str], count: int) -> str:
    return "\n".join([*lines[:count], CUT_NOTE.format(count=len(lines) - count)])


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest count in 0 .. limit that fits, by bisection; 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
