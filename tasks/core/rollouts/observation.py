"""Observations as text and token ids, cut to a budget."""

from collections.abc import Callable
from typing import NamedTuple

from tasks.core.policies.chat_format import ChatFormat

CUT_LINES = "[output cut: {count} lines left out]"
CUT_CHARACTERS = "[output cut: {count} characters left out]"


class ShownObservation(NamedTuple):
    """An observation as the policy sees it."""

    text: str
    ids: list[int]
    """To append to the conversation: `ChatFormat.continuation_ids` of the text."""


def shown_observation(
    chat: ChatFormat, text: str, ending: str = "", *, closed: bool, max_tokens: int
) -> ShownObservation:
    """An observation, of whose text at most `max_tokens` stay.

    Of a longer text the first lines and the last one stay, since errors come last. Where there is no room for two, its
    first characters and a third as many of its last ones stay. A note between them says how much is left out; it counts
    too. A budget smaller than the note leaves the note alone. `ending` follows whole and does not count.
    """

    def render(shown: str) -> ShownObservation:
        return ShownObservation(shown + ending, chat.continuation_ids(shown + ending, closed=closed))

    whole = render(text)
    if len(whole.ids) <= max_tokens:
        return whole
    budget = max_tokens + len(render("").ids)
    if len(whole.ids) <= budget:
        return whole

    def longest(limit: int, cut: Callable[[int], str]) -> int:
        return _longest(limit, lambda count: len(render(cut(count)).ids) <= budget)

    lines = text.splitlines()
    kept = longest(len(lines) - 2, lambda count: _without_lines(lines, count))
    if kept > 0:
        return render(_without_lines(lines, kept))
    kept = longest(len(text) * 3 // 4, lambda count: _without_characters(text, count))
    return render(_without_characters(text, kept))


def _without_lines(lines: list[str], first: int) -> str:
    """The first lines, so many, and the last one."""
    return "\n".join([*lines[:first], CUT_LINES.format(count=len(lines) - first - 1), lines[-1]])


def _without_characters(text: str, first: int) -> str:
    """The first characters, so many, and a third as many of the last."""
    last = first // 3
    note = CUT_CHARACTERS.format(count=len(text) - first - last)
    return text[:first] + note + text[len(text) - last :]


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest count in 0 .. limit that fits, by bisection; 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
