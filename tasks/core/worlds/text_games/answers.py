"""Answers: the actions that a turn's text requests. The text is hostile; reading it takes linear time."""

import re
from dataclasses import dataclass

SEPARATOR = "||"
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_THOUGHT_ENDS = re.compile(r"</think>\s*<answer>")


@dataclass(frozen=True)
class Answer:
    """The actions that a turn requests."""

    actions: tuple[str, ...]
    """As written, without outer blanks; empty if the turn cannot be read."""
    count: int
    """How many answers the turn began. Only the first is played."""


def read_answer(text: str, *, thinking: bool, max_actions: int) -> Answer:
    """Read the first answer of a turn: `<answer>A || B</answer>`.

    With `thinking`, it must directly follow `<think>...</think>`. As in RAGEN, text around the answer is ignored, tags
    in it are dropped, and so are actions beyond `max_actions`.
    """
    content = _first_answer(text, thinking)
    for tag in _TAGS:
        content = content.replace(tag, "")
    actions = [action.strip() for action in content.split(SEPARATOR)]
    return Answer(tuple([action for action in actions if action][:max_actions]), text.count("<answer>"))


def answer_text(actions: tuple[str, ...] | list[str], thought: str | None) -> str:
    """Return the turn that requests `actions`; `thought` None leaves out the thinking part."""
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
    """Return the text from `begin` to the next end of an answer; empty if there is none."""
    end = text.find("</answer>", begin)
    return text[begin:end] if end >= 0 else ""
