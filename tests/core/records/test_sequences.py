"""Sequences of a rollout as a reader sees them: what a later one repeats is shown once."""

from typing import Any

import pytest

from tasks.core.records.sequences import parts, spans


def row(*sequences: str) -> dict[str, Any]:
    """Return a rollout of one token per letter, of which capitals are sampled; each run of them is a turn."""
    turns, turn, sampled = [], -1, False
    for sequence in sequences:
        for letter in sequence:
            turn += letter.isupper() and not sampled
            sampled = letter.isupper()
            turns.append(turn if sampled else -1)
        sampled = False
    begins = [sum(map(len, sequences[:number])) for number in range(len(sequences))]
    return {"token_ids": [ord(x.lower()) for x in "".join(sequences)], "turn_index": turns, "sequence_begins": begins}


@pytest.mark.parametrize(
    ("sequences", "shown"),
    [
        (["aBCdE"], ["a", "bc", "d", "e"]),
        (["pTTAB", "pabxC"], ["p", "ttab", "x", "c"]),  # later turns don't see the thought TT
        (["ptTAB", "pabxtTC", "pabxcyD"], ["pt", "tab", "xt", "tc", "y", "d"]),  # the prompt opens the thought
        (["pAxB", "payC"], ["p", "a", "x", "b", "y", "c"]),  # a fork
        (["pA", "pB"], ["p", "a", "b"]),  # the same prompt twice
        (["pA", "qB"], ["p", "a", "q", "b"]),  # another conversation
        (["pAxB", "szC"], ["p", "a", "x", "b", "sz", "c"]),  # a history that was rewritten
        ([""], []),
    ],
)
def test_what_a_sequence_repeats_is_shown_once(sequences: list[str], shown: list[str]) -> None:
    found = list(parts(row(*sequences)))
    assert ["".join(map(chr, ids)) for _, ids in found] == shown
    turns = [turn for turn, _ in found if turn >= 0]
    assert turns == list(range(len(turns)))


def test_the_places_of_sequences() -> None:
    assert spans([0, 3], 5) == [slice(0, 3), slice(3, 5)]
    assert spans([0], 0) == [slice(0, 0)]
