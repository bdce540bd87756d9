"""The tokens of the embedded τ²-bench policy: every call, and every part of an answer that varies, is one token."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tasks.core.interfaces.world import Message

_PARTS = re.compile(r"[^\n,|.:]+(?:\n|, |\| |\. |: |[,|.:])?|.", re.DOTALL)
_ROLES = ("system\n", "user\n", "assistant\n")


def pieces(conversations: Sequence[Sequence[Message]]) -> list[str]:
    """Return the pieces of the tokenizer: whole turns of the agent, and phrases of what it reads.

    A text is cut after every sign. Two neighbours are one phrase where neither ever stands without the other,
    so that what all answers of a tool share takes as few tokens as it can, and what differs is a token of its own.
    """
    calls = {message["content"] for messages in conversations for message in messages if message["role"] == "assistant"}
    read = {message["content"] for messages in conversations for message in messages if message["role"] != "assistant"}
    return sorted({*_ROLES, *calls, *_phrases([_PARTS.findall(text) for text in sorted(read)])})


def _phrases(texts: list[list[str]]) -> set[str]:
    """Join inseparable neighbours until there are none."""
    while True:
        counts = Counter(part for text in texts for part in text)
        pairs = Counter(pair for text in texts for pair in pairwise(text))
        joined = {pair for pair, count in pairs.items() if count == counts[pair[0]] == counts[pair[1]]}
        if not joined:
            return {part for text in texts for part in text}
        texts = [_join(text, joined) for text in texts]


def _join(text: Iterable[str], pairs: set[tuple[str, str]]) -> list[str]:
    parts: list[str] = []
    last = ""
    for part in text:
        if parts and (last, part) in pairs:
            parts[-1] += part
        else:
            parts.append(part)
        last = part
    return parts
