"""Token ids taken apart into the messages of which they were made, for every family of chat templates."""

from pathlib import Path
from typing import Any

import pytest

from tasks.core.exports.messages import Conversations
from tasks.core.interfaces.world import Message, Observation
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_tokenizer
from tasks.core.rollouts.transcript import Transcript
from tests.core.policies.test_chat_templates import DROPPING, FAMILIES, tokenizer_of

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


def played(chat: ChatFormat, opening: list[Message], *, closed: bool) -> dict[str, Any]:
    """Return the columns of two turns, `Look.` and `Done.`, with an observation between them."""
    transcript, prompt = Transcript(), chat.prompt_ids(opening)
    for text in ("Look.", "Done."):
        turn = chat.turn_ids(text)[: None if closed else -1]
        transcript.add_turn(prompt, turn, [0.0] * len(turn))
        transcript.add_reply(Observation("", done=False))
        prompt = [*chat.seen_later(prompt, turn), *chat.continuation_ids("A\nledger <b>.", closed=closed)]
    return transcript.columns()


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("closed", [True, False])
def test_messages_are_those_that_were_said(opening: list[Message], closed: bool) -> None:
    chat = ChatFormat(load_tokenizer(SHIPPED))
    said = [
        {"role": "assistant", "content": "Look."},
        {"role": "user", "content": "A\nledger <b>."},
        {"role": "assistant", "content": "Done."},
    ]
    assert Conversations(chat).parts(played(chat, opening, closed=closed)) == (opening, said)


@pytest.mark.parametrize(
    ("name", "earlier"), [*((n, "kept") for n in FAMILIES), *((n, "as_template") for n in DROPPING)]
)
def test_every_template_gives_back_who_said_what(name: str, earlier: str) -> None:
    family = FAMILIES[name]
    settings = family.settings.model_copy(update={"earlier_thoughts": earlier})
    chat = ChatFormat(tokenizer_of(family), settings=settings)
    opening, (look, ledger, done) = Conversations(chat).parts(played(chat, OPENINGS[0], closed=True))
    assert opening[-1]["content"].endswith("Pay.\n\nNow.")
    assert "Act.\n\nWell." in "".join(message["content"] for message in opening)
    assert [look["role"], ledger["role"], done["role"]] == ["assistant", "user", "assistant"]
    assert (look["content"].endswith("Look."), ledger["content"]) == (True, "A\nledger <b>.")
    assert done["content"].endswith("Done.")
    assert not any("<|" in message["content"] for message in (*opening, look, ledger, done))
