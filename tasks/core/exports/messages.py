"""A recorded conversation as messages: the token ids of a rollout taken apart along its chat template.

Thoughts stay in the turns as they were sampled. Special tokens are inert in what a world says (`ChatFormat.render`), so
the template's own text can be told from it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.sequences import parts

_Role = Literal["system", "user", "assistant"]
_MARKS = ("mark-of-system", "mark-of-user", "mark-of-turn", "mark-of-answer")


class Conversations:
    """Rollouts in the tokens of one chat format, as messages."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        self._openings = list(_openings(chat))
        self._around = {closed: _around_observation(chat, closed) for closed in (True, False)}

    def parts(self, row: dict[str, Any]) -> tuple[list[Message], list[Message]]:
        """Return the messages before the first turn of a rollout; then each turn and what the world said to it."""
        opening: list[Message] = []
        played: list[Message] = []
        closed = False
        for turn, ids in parts(row):
            if turn >= 0:
                played.append(_said("assistant", self._chat.whole_turn(ids)))
                closed = self._chat.closes(ids)
            elif opening:
                played.append(_said("user", self._observation(ids, closed)))
            else:
                opening = self._opening(self._chat.text_with_marks(ids))
        return opening, played

    def _opening(self, text: str) -> list[Message]:
        """Return the messages of an opening with its generation prompt; one of the user where it has another form."""
        for frame in self._openings:
            if (found := frame.messages(text)) is not None:
                return found
        return [_said("user", text)]

    def _observation(self, ids: Sequence[int], closed: bool) -> str:
        before, after = self._around[closed]
        return self._chat.text_with_marks(ids).removeprefix(before).removesuffix(after)


def _openings(chat: ChatFormat) -> Iterator["_Frame"]:
    system, *others = _MARKS
    if chat.takes_system:
        yield _frame(chat.render([_said("system", system), *_dialogue(*others)]))
    yield _frame(chat.render(_dialogue(*others)))


def _around_observation(chat: ChatFormat, closed: bool) -> tuple[str, str]:
    """Return the text before and after what the world says to a turn that ended with its mark, or without."""
    before, _, after = chat.text_with_marks(chat.continuation_ids(_MARKS[1], closed=closed)).partition(_MARKS[1])
    return before, after


class _Frame:
    """The texts before the first message and between two of given roles, and the one at the end."""

    def __init__(self, parts: Sequence[str], roles: Sequence[_Role]) -> None:
        self._start, *self._between, self._end = parts
        self._roles = roles

    def messages(self, text: str) -> list[Message] | None:
        """Return the messages; None where the text is framed otherwise."""
        if not (text.startswith(self._start) and text.endswith(self._end)):
            return None
        rest = text[len(self._start) : len(text) - len(self._end)]
        found: list[Message] = []
        fixed = len(self._roles) - 3  # the system message
        for role, after in zip(self._roles[:fixed], self._between[:fixed], strict=True):
            content, mark, rest = rest.partition(after)
            if not mark:
                return None
            found.append(_said(role, content))
        to_turn, to_user = self._between[fixed:]
        pieces = re.split(f"{re.escape(to_turn)}|{re.escape(to_user)}", rest)
        marks = re.findall(f"{re.escape(to_turn)}|{re.escape(to_user)}", rest)
        if marks != [to_user if place % 2 else to_turn for place in range(len(marks))] or len(pieces) % 2 == 0:
            return None
        return [*found, *(_said("assistant" if place % 2 else "user", piece) for place, piece in enumerate(pieces))]


def _frame(text: str) -> _Frame:
    """Return the frame of a text in which marks stand for the messages."""
    shown = [mark for mark in _MARKS if mark in text]
    roles: list[_Role] = ["system", "user", "assistant", "user"]
    return _Frame(re.split("|".join(shown), text), roles[len(_MARKS) - len(shown) :])


def _said(role: _Role, content: str) -> Message:
    return {"role": role, "content": content}


def _dialogue(user: str, turn: str, answer: str) -> list[Message]:
    return [_said("user", user), _said("assistant", turn), _said("user", answer)]
