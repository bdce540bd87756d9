"""Which text of a turn is run: by hand, and against formulations without a regular expression on random markdown."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.core.code_blocks import TurnCode, turn_code

PIECES = [
    *["```", "````", "``", "`", "~~~"],
    *["python", "py", "python3", "Python", "PY", "pycon", "json", "bash", "markdown", "text"],
    *["\n", "\r\n", " ", "\t", "\n\n"],
    *["x = 1", "print('a')", "Now code:", "{}", "é\N{PILE OF POO}", "```python\n", "\n```\n", "```json\n", "```py "],
]
TURNS = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
MANY = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
"""Examples, of ten turns each."""


def reference(said: str) -> str:
    """Code that apple/ml-loop runs: at each opener as far as the next fence; the stripped codes, one after another."""
    code, place = "", 0
    while (opener := said.find("```py", place)) >= 0:
        begin = opener + (len("```python") if said.startswith("```python", opener) else len("```py"))
        begin += said.startswith("\n", begin)
        end = said.find("```", begin)
        if end < 0:
            return code + said[begin:].strip()
        code, place = code + said[begin:end].strip() + "\n", end + 3
    return code


def first_blocks(said: str) -> list[str]:
    """The code blocks by the stated rule, read from left to right, backtick by backtick."""
    blocks, place = [], 0
    while (opener := said.find("```", place)) >= 0:
        length = len(said[opener:]) - len(said[opener:].lstrip("`"))
        after = said[opener + length :].lstrip(" \t")
        tag = next((tag for tag in ("python3", "python", "py") if after[: len(tag)].lower() == tag), "")
        if tag and not is_word(after[len(tag) : len(tag) + 1]):
            rest = after[len(tag) :].lstrip(" \t")
            rest = rest.removeprefix("\r\n") if rest.startswith("\r\n") else rest.removeprefix("\n")
            blocks.append(rest.partition("`" * length)[0])
            closing = rest.find("`" * length)
            if closing < 0:
                return blocks
            place = len(said) - len(rest[closing:].lstrip("`"))
        else:
            place = end_of_other(said, opener + length, length)
    return blocks


def end_of_other(said: str, place: int, length: int) -> int:
    while (fence := said.find("`" * length, place)) >= 0:
        place = len(said) - len(said[fence:].lstrip("`"))
        if not is_word(said[place : place + 1]):
            return place
    return len(said)


def is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@MANY
@given(st.lists(TURNS, min_size=10, max_size=10))
def test_all_blocks_run_by_the_rule_of_the_reference(turns: list[str]) -> None:
    for said in turns:
        found = turn_code(said, "all")
        assert found.text == reference(said)
        assert (found.blocks > 0) == bool(found.text) and found.ran == found.blocks


@MANY
@given(st.lists(TURNS, min_size=10, max_size=10))
def test_the_first_block_runs_and_code_blocks_alone_count(turns: list[str]) -> None:
    for said in turns:
        blocks = first_blocks(said)
        assert turn_code(said, "first") == TurnCode("".join(blocks[:1]), len(blocks), min(1, len(blocks)))


@pytest.mark.parametrize(
    ("said", "first", "every", "blocks"),
    [
        ("I think.\n```python\nx = 1\n```", "x = 1\n", "x = 1\n", 1),
        ("```json {} ``` Now code: ```python print(1)```", "print(1)", "print(1)\n", 1),
        ("```\nseen\n```\nSo:\n```python\nx\n```", "x\n", "x\n", 1),
        ("```bash\nls\n```\n```Python3\nx\n```\n```PY y```", "x\n", "", 2),
        ("```python3\nprint(1)\n```", "print(1)\n", "3\nprint(1)\n", 1),
        ("```py\na\n```\n\n```python\nb\n```", "a\n", "a\nb\n", 2),
        ("```python\na\n```\nand\n```python\nnever closed", "a\n", "a\nnever closed", 2),
        ("```python\nnever closed", "never closed", "never closed", 1),
        ("```python\r\na\r\n```", "a\r\n", "a\n", 1),
        ("```python\n  indented\n```", "  indented\n", "indented\n", 1),
        ("```markdown\n```python\nx\n```\n```", "", "x\n", 0),
        ("````md\n```python\nx\n```\n````\n```python\ny\n```", "y\n", "x\ny\n", 1),
        ("````python\nx = 1\n```\ny\n````\nend", "x = 1\n```\ny\n", "x = 1\n", 1),
        ("````python\nx\n```\n", "x\n```\n", "x\n", 1),
        ("```pycon\n>>> x\n```", "", "con\n>>> x\n", 0),
        ("print(1)", "", "", 0),
        ("```\nprint(1)\n```", "", "", 0),
        ("", "", "", 0),
    ],
)
def test_turns_by_hand(said: str, first: str, every: str, blocks: int) -> None:
    assert turn_code(said, "first") == TurnCode(first, blocks, min(1, blocks))
    assert turn_code(said, "all").text == every


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("print(1)\nprint(2)", TurnCode("print(1)\nprint(2)", 1, 1)),
        ("So:\n```python\nx = 1\n```", TurnCode("x = 1\n", 1, 1)),
        ("```bash\nls\n```", TurnCode("", 0, 0)),
        (" \n", TurnCode("", 0, 0)),
    ],
)
def test_a_turn_without_any_fence_is_code_where_the_knob_says_so(said: str, code: TurnCode) -> None:
    assert turn_code(said, "first_or_bare") == code
