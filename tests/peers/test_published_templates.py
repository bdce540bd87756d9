"""The chat templates of thirty families, as trl has them: a turn ends, and a thought's code is none (lane peers)."""

import re

import pytest

from tasks.core.config.policy import ChatSettings
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.chat_format import ChatFormat, ChatTemplateError
from tests.core.policies.test_chat_templates import DATED, WRONG, byte_tokenizer
from tests.peers.interpreter import PEERS, ROOT

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

SPECIAL = re.compile(
    r"<\|[^|<>\s'\"]+\|>|<\uff5c[^<>\s]+\uff5c>|</?s>|<(?:start|end)_of_turn>|\[gMASK\]|<sop>|<\|turn>|<turn\|>"
)
REFUSED = {"idefics3", "llava_next", "smolvlm"}
"""Their users' messages are lists of parts."""


def broken_by(template: str, settings: ChatSettings) -> str:
    """Return what is wrong with a template's conversations; empty if nothing is."""
    special = tuple(dict.fromkeys(SPECIAL.findall(template))) or ("</s>",)
    tokenizer = byte_tokenizer(template, special, special[-1])
    tokenizer.bos_token = special[0]
    chat = ChatFormat(tokenizer, settings=settings)
    (end,) = chat._tokenizer.convert_ids_to_tokens([chat._end_of_turn])
    frame, opened = chat.frame, f"T {WRONG}"
    if chat.stop_ids[0] != chat._end_of_turn or not chat.closes(chat.turn_ids("A")):
        return f"{end} does not stop a turn"
    begun = opened if frame.prompt_opens_thought else f"{frame.thought_begins}{opened}"
    if frame.thought_ends and [chat.answer(chat._encode(begun + rest)) for rest in ("", f"{frame.thought_ends}A")] != [
        "",
        "A",
    ]:
        return "a thought's code is an answer"
    return "" if frame.thought_ends or "</think>" not in template else "thoughts are not known"


def test_turns_end_and_code_in_thoughts_is_no_answer() -> None:
    library = python_executable(ROOT / INTERPRETERS, PEERS).parents[1] / "lib"
    (folder,) = library.glob("python*/site-packages/trl/chat_templates")
    found, refused = {}, set()
    for path in sorted(folder.glob("*.jinja")):
        try:
            found[path.stem] = broken_by(path.read_text(encoding="utf-8"), DATED)
        except ChatTemplateError:
            refused.add(path.stem.removesuffix("_training"))
    assert len(found) > 60 and not {name: fault for name, fault in found.items() if fault}
    assert refused == REFUSED
