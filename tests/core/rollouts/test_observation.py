import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tasks.core.policies.chat_format import ChatFormat
from tasks.core.rollouts.episode import CUT_CHARACTERS, shown_observation


def shown(chat: ChatFormat, tokenizer: PreTrainedTokenizerFast, text: str, limit: int) -> str:
    """The observation's text as the policy sees it."""
    whole = tokenizer.decode(shown_observation(chat, text, closed=True, max_tokens=limit).ids)
    return str(whole.removeprefix("\n<|im_start|>user\n").removesuffix("<|im_end|>\n<|im_start|>assistant\n"))


def test_a_text_within_the_budget_is_appended_as_it_is(chat: ChatFormat) -> None:
    for closed in (True, False):
        expected = chat.continuation_ids("ab\ncd", closed=closed)
        assert shown_observation(chat, "ab\ncd", closed=closed, max_tokens=5).ids == expected


def test_a_longer_text_keeps_its_first_lines_and_its_last(chat: ChatFormat, tokenizer: PreTrainedTokenizerFast) -> None:
    text = "\n".join(f"line {index}" for index in range(20))
    kept = "line 0\nline 1\nline 2\n[output cut: 16 lines left out]\nline 19"
    assert shown(chat, tokenizer, text, 65) == kept


@pytest.mark.parametrize("text", ["x" * 75 + "y" * 25, "x" * 75 + "\n" + "y" * 24])
def test_a_line_that_is_too_long_keeps_its_first_and_last_characters(
    chat: ChatFormat, tokenizer: PreTrainedTokenizerFast, text: str
) -> None:
    assert shown(chat, tokenizer, text, 50) == "x" * 11 + "[output cut: 86 characters left out]" + "yyy"


def test_a_budget_below_the_note_leaves_the_note(chat: ChatFormat, tokenizer: PreTrainedTokenizerFast) -> None:
    assert shown(chat, tokenizer, "x" * 100, 3) == CUT_CHARACTERS.format(count=100)


@pytest.mark.parametrize("closed", [True, False])
def test_an_ending_stays_whole_beside_a_text_that_is_cut(
    chat: ChatFormat, tokenizer: PreTrainedTokenizerFast, closed: bool
) -> None:
    text, ending = "\n".join(f"line {index}" for index in range(20)), "\n(Reminder: " + "look it up. " * 10 + ")"
    short = shown_observation(chat, "ab", ending, closed=closed, max_tokens=60).ids
    assert short == chat.continuation_ids("ab" + ending, closed=closed)
    kept = "line 0\nline 1\nline 2\n[output cut: 16 lines left out]\nline 19"
    cut = chat.continuation_ids(kept + ending, closed=closed)
    assert shown_observation(chat, text, ending, closed=closed, max_tokens=65).ids == cut
    alone = shown_observation(chat, "x" * 100, ending, closed=closed, max_tokens=1).ids
    assert alone == chat.continuation_ids(CUT_CHARACTERS.format(count=100) + ending, closed=closed)


@pytest.mark.parametrize("text", ["", "\n", "\n" * 100, "\r\n" * 80, "é" * 50])
def test_odd_texts_keep_the_budget(chat: ChatFormat, text: str) -> None:
    ids = shown_observation(chat, text, closed=True, max_tokens=40).ids
    assert len(ids) <= 40 + len(chat.continuation_ids("", closed=True))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text("ab c", max_size=12), max_size=30), limit=st.integers(40, 120))
def test_the_budget_is_kept_and_used(chat: ChatFormat, lines: list[str], limit: int) -> None:
    text = "\n".join(lines)
    frame = len(chat.continuation_ids("", closed=True))
    used = len(shown_observation(chat, text, closed=True, max_tokens=limit).ids) - frame
    assert used <= limit
    assert used == len(text) or used > limit - 15 - len("[output cut: 10 lines left out]")
