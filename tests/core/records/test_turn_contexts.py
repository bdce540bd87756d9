import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.records.turn_contexts import seen_by, turn_sequences

# Prompt, "<think>" of the prompt, a thought, an answer; what the world said, "<think>", a thought, an answer; the same.
TURNS = np.array([-1, -1, 0, 0, -1, -1, 1, 1, -1, -1, 2], np.int32)
DROPPED = np.array([0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0], np.bool_)


def test_a_turn_saw_what_opened_its_own_thought_but_no_earlier_thought() -> None:
    assert seen_by(0, TURNS, DROPPED).tolist() == [0, 1, 2, 3]
    assert seen_by(1, TURNS, DROPPED).tolist() == [0, 3, 4, 5, 6, 7]
    assert seen_by(2, TURNS, DROPPED).tolist() == [0, 3, 4, 7, 8, 9, 10]


def test_each_turn_is_sampled_once_in_the_context_that_it_saw() -> None:
    sequences = turn_sequences(TURNS, DROPPED)
    assert [sequence.positions.tolist() for sequence in sequences] == [
        [0, 1, 2, 3],
        [0, 3, 4, 5, 6, 7],
        [0, 3, 4, 7, 8, 9, 10],
    ]
    sampled = [sequence.positions[sequence.sampled].tolist() for sequence in sequences]
    assert sampled == [[2, 3], [6, 7], [10]]


def test_turns_share_a_sequence_until_a_thought_is_dropped() -> None:
    dropped = DROPPED.copy()
    dropped[:4] = False  # the first turn had no thought
    first, second = turn_sequences(TURNS, dropped)
    assert first.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert first.positions[first.sampled].tolist() == [2, 3, 6, 7]
    assert second.positions.tolist() == [0, 1, 2, 3, 4, 7, 8, 9, 10]
    (whole,) = turn_sequences(TURNS, np.zeros(len(TURNS), np.bool_))
    assert whole.positions.tolist() == list(range(11)) and whole.sampled.tolist() == (TURNS >= 0).tolist()


def test_a_rollout_without_sampled_tokens_has_no_sequence() -> None:
    assert turn_sequences(np.array([-1, -1], np.int32), np.zeros(2, np.bool_)) == []


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """Turns of one to three tokens, each after one to three others; a thought reaches from these into the turn."""
    turns: list[int] = []
    dropped: list[bool] = []
    for turn in range(draw(st.integers(1, 5))):
        before, length = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        opening, thought = draw(st.integers(0, before - 1)), draw(st.integers(0, length))
        turns += [-1] * before + [turn] * length
        dropped += [False] * (before - opening) + [True] * (opening + thought) + [False] * (length - thought)
    return turns, dropped


@given(rollouts())
def test_every_sampled_token_follows_exactly_what_its_turn_saw(rollout: tuple[list[int], list[bool]]) -> None:
    turns, dropped = np.array(rollout[0], np.int32), np.array(rollout[1], np.bool_)
    trained: list[int] = []
    for positions, sampled in turn_sequences(turns, dropped):
        for place in np.flatnonzero(sampled).tolist():
            token, turn = positions[place], int(turns[positions[place]])
            since = max(np.flatnonzero((turns >= 0) & (turns < turn)), default=-1)
            saw = [before for before in range(token) if not dropped[before] or before > since]
            assert positions[:place].tolist() == saw
            trained.append(int(token))
    assert trained == np.flatnonzero(turns >= 0).tolist()
