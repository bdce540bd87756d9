"""Early stop by length cuts the same rollouts however they are divided."""

import math
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.collection import EarlyStop
from tasks.core.rollouts.early_stop import CUT_REASON, LengthRule, cut_longer, length_of, limit_of

STOP = EarlyStop(min_per_task=2, share=0.5)


def row(task: str, length: int, end: str = "completed") -> dict[str, Any]:
    columns = ("token_ids", "policy_mask", "turn_index", "engine_logprobs", "turns", "tests_passed", "tests_failed")
    held = dict.fromkeys(columns, [True] * length)
    return {"task_id": task, **held, "return": 1.0, "success": True, "end_reason": end, "world_retries": 1}


def test_the_limit_is_the_least_length_within_which_enough_end() -> None:
    planned = ["a"] * 4 + ["b"] * 4
    assert limit_of(STOP, planned, [("a", 1), ("a", 2), ("b", 3)]) == math.inf  # b has one only
    ended = [("a", 1), ("a", 2), ("a", 3), ("b", 9), ("b", 20), ("b", 30)]
    assert limit_of(STOP, planned, ended) == 20  # b's second; four of eight are within 9
    assert limit_of(EarlyStop(min_per_task=2, share=0.75), planned, ended) == 30
    assert limit_of(EarlyStop(min_per_task=2, share=1.0), planned, ended) == math.inf


def test_the_rollouts_beyond_the_limit_are_void_and_empty_and_so_are_those_given_up() -> None:
    rows = [row("a", 1), row("a", 2), row("a", 3), row("a", 2, CUT_REASON), row("a", 1, "world_fault")]
    found = cut_longer(EarlyStop(min_per_task=2, share=0.4), rows)
    assert found[:2] == rows[:2] and found[4] == rows[4]
    assert [one["end_reason"] for one in found[2:4]] == [CUT_REASON] * 2
    assert all(one["token_ids"] == [] and one["return"] == 0 and not one["success"] for one in found[2:4])


Lengths = st.lists(st.integers(1, 30), min_size=4, max_size=4)


@given(lengths=st.lists(Lengths, min_size=1, max_size=5), data=st.data())
def test_who_knows_less_gives_up_no_rollout_that_is_kept(lengths: list[list[int]], data: st.DataObject) -> None:
    """So any order of ends, and any part of the messages, leads to the same rows."""
    everything = [(str(task), length) for task, each in enumerate(lengths) for length in each]
    planned = [task for task, _ in everything]
    known = data.draw(st.lists(st.sampled_from(range(len(everything))), unique=True))
    limit = limit_of(STOP, planned, [everything[place] for place in known])
    assert limit >= limit_of(STOP, planned, everything)
    rows = [row(task, length) for task, length in everything]
    given_up = [one if length_of(one) <= limit else one | {"end_reason": CUT_REASON} for one in rows]
    assert cut_longer(STOP, given_up) == cut_longer(STOP, rows)


def test_shards_tell_each_other_of_their_ended_rollouts(tmp_path: Path) -> None:
    planned = ("a",) * 4 + ("b",) * 4
    first, second = (LengthRule(STOP, planned, tmp_path, name) for name in "01")
    for length in (5, 6):
        first.add(row("a", length))
        second.add(row("b", length + 1))
    assert first.limit() == second.limit() == 7
    assert LengthRule(STOP, planned).limit() == math.inf
