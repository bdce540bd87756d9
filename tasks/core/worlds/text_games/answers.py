"""Answers: from the text of a turn to the actions that it asks for. The text is hostile; reading it is linear in it."""

import re
from dataclasses import dataclass

SEPARATOR = "||"
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_THOUGHT_ENDS = re.compile(r"</think>\s*<answer>")


@dataclass(frozen=True)
class Answer:
    """The request in a turn."""

    actions: tuple[str, ...]
    """As written, without outer blanks; none if the turn cannot be read."""
    count: int
    """How many answers the turn began. Only the first is played."""


def read_answer(text: str, *, thinking: bool, max_actions: int) -> Answer:
    """The first answer of a turn: `<answer>A || B</answer>`, with `thinking` right behind a `<think>...</think>`.

    As RAGEN reads it: text around it is ignored, tags within it are dropped, so are the actions beyond `max_actions`.
    """
    content = _first_answer(text, thinking)
    for tag in _TAGS:
        content = content.replace(tag, "")
    actions = [action.strip() for action in content.split(SEPARATOR)]
    return Answer(tuple([action for action in actions if action][:max_actions]), text.count("<answer>"))


def answer_text(actions: tuple[str, ...] | list[str], thought: str | None) -> str:
    """The turn that asks for `actions`; `thought` None: without a thinking part."""
    answer = f"<answer>{f' {SEPARATOR} '.join(actions)}</answer>"
    return answer if thought is None else f"<think>{thought}</think>{answer}"


def _first_answer(text: str, thinking: bool) -> str:
    if not thinking:
        begin = text.find("<answer>")
        return _between(text, begin + len("<answer>")) if begin >= 0 else ""
    begin = text.find("<think>")
    thought = _THOUGHT_ENDS.search(text, begin) if begin >= 0 else None
    return "" if thought is None else _between(text, thought.end())


def _between(text: str, begin: int) -> str:
    """Text from `begin` to the next end of an answer; nothing if there is none."""
    end = text.find("</answer>", begin)
    return text[begin:end] if end >= 0 else ""
