import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.text_games.episode import Answer, answer_text, read_answer

WORDS = st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6), max_size=5)


@pytest.mark.parametrize(
    ("text", "actions", "count"),
    [
        ("<think>go</think><answer>Up || Left</answer>", ("Up", "Left"), 1),
        ("well <think>go</think> \n <answer> Up||</answer> bye", ("Up",), 1),
        ("<think>a</think>b</think><answer>Up</answer>", ("Up",), 1),
        ("<think></think><answer>Up</answer><answer>Down</answer>", ("Up",), 2),
        ("<think></think><answer>1||2||3||4||5||6</answer>", ("1", "2", "3", "4", "5"), 1),
        ("<think>x</think><answer>Up <answer>|| Down</answer>", ("Up", "Down"), 2),
        ("<answer>Up</answer>", (), 1),
        ("<think>x</think> so <answer>Up</answer>", (), 1),
        ("<think>x</think><answer>Up", (), 1),
        ("<think>x</think><answer> || </answer>", (), 1),
        ("Up", (), 0),
        ("", (), 0),
    ],
)
def test_turns_are_read_as_ragen_reads_them(text: str, actions: tuple[str, ...], count: int) -> None:
    assert read_answer(text, thinking=True, max_actions=5) == Answer(actions, count)


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("<answer>Up</answer>", ("Up",)),
        ("<think>x</think><answer>Up</answer>", ("Up",)),
        ("x<answer>Up</answer><answer>Down</answer>", ("Up",)),
        ("<answer>Up", ()),
        ("</answer>Up", ()),
    ],
)
def test_without_thinking_the_answer_is_all(text: str, actions: tuple[str, ...]) -> None:
    assert read_answer(text, thinking=False, max_actions=5).actions == actions


@given(WORDS, st.sampled_from([None, "", "so be it"]))
def test_what_is_written_is_read(actions: list[str], thought: str | None) -> None:
    read = read_answer(answer_text(actions, thought), thinking=thought is not None, max_actions=5)
    assert read == Answer(tuple(actions), 1)


@pytest.mark.parametrize(
    "part", ["<think>", "</think>", "</think> ", "<answer>", "</answer>", "||", " ", "<", "\u0000"]
)
def test_a_megabyte_of_hostile_text_is_read_at_once(part: str) -> None:
    text = "<think>" + part * (1_000_000 // len(part))
    begin = time.process_time()
    read_answer(text, thinking=True, max_actions=5)
    read_answer(text, thinking=False, max_actions=5)
    assert time.process_time() - begin < 1
