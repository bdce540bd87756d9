"""Token ids taken apart into the messages of which they were made, for every family of chat templates."""

from pathlib import Path

import pytest

from tasks.core.exports.messages import Conversations
from tasks.core.interfaces.world import Message
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer
from tests.core.policies.test_chat_templates import FAMILIES, tokenizer_of

SHIPPED = Path(__file__).parents[3] / "data" / "base_policies" / "pocket"
OPENINGS: list[list[Message]] = [
    [{"role": "system", "content": "Act.\n\nWell."}, {"role": "user", "content": "Pay.\n\nNow."}],
    [
        {"role": "system", "content": "Act."},
        {"role": "user", "content": "Greet."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Pay."},
    ],
]


def played(chat: ChatFormat, opening: list[Message], *, closed: bool) -> tuple[list[int], list[int]]:
    """Return tokens and turns of two turns, `Look.` and `Done.`, with an observation between them."""
    turns = [chat.turn_ids(text) for text in ("Look.", "Done.")]
    first = turns[0] if closed else turns[0][:-1]
    parts = [chat.prompt_ids(opening), first, chat.continuation_ids("A\nledger <b>.", closed=closed), turns[1]]
    ids = [token for part in parts for token in part]
    index = [turn for part, turn in zip(parts, (-1, 0, -1, 1), strict=True) for _ in part]
    return ids, index


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("closed", [True, False])
def test_messages_are_those_that_were_said(opening: list[Message], closed: bool) -> None:
    chat = ChatFormat(load_tokenizer(SHIPPED))
    said = [
        {"role": "assistant", "content": "Look."},
        {"role": "user", "content": "A\nledger <b>."},
        {"role": "assistant", "content": "Done."},
    ]
    assert Conversations(chat).parts(*played(chat, opening, closed=closed)) == (opening, said)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_template_gives_back_who_said_what(name: str) -> None:
    family = FAMILIES[name]
    chat = ChatFormat(tokenizer_of(family), settings=family.settings)
    opening, (look, ledger, done) = Conversations(chat).parts(*played(chat, OPENINGS[0], closed=True))
    assert opening[-1]["content"].endswith("Pay.\n\nNow.")
    assert "Act.\n\nWell." in "".join(message["content"] for message in opening)
    assert [look["role"], ledger["role"], done["role"]] == ["assistant", "user", "assistant"]
    assert (look["content"].endswith("Look."), ledger["content"]) == (True, "A\nledger <b>.")
    assert done["content"].endswith("Done.")
    assert not any("<|" in message["content"] for message in (*opening, look, ledger, done))
