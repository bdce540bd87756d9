"""Behaviour metrics: every row of the table counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.evaluation.behaviour import ActedRollout, Turn, behaviour, diversity, give_up_rate


def turn(*calls: str, failed: bool = False, blocks: int = 1) -> Turn:
    return {"failed": failed, "code_blocks": blocks, "api_calls": list(calls), "failed_api_calls": []}


def rollout(*turns: Turn, task: str = "t", success: bool = True, text: str = "") -> ActedRollout:
    return ActedRollout(task, success, turns, text)


def test_every_metric_by_hand() -> None:
    docs = "api_docs.show_api_doc"
    one = rollout(
        turn(docs, docs),
        turn("phone.login", blocks=2, failed=True),
        turn("phone.login"),
        text="I assume so. Assuming it works, she assumed a dummy_email; the dummy is unassuming.",
    )
    two = rollout(turn(docs, "mail.send", failed=True), success=False, text="Assume nothing: presumed.")
    found = behaviour([one, two])
    assert found.rollouts == 2
    assert found.turns_per_rollout == 2
    assert found.multi_cell_turns == 1 / 4
    assert found.doc_lookups == 3 / 2
    assert found.assumptions == 4 / 2
    assert found.dummies == 2 / 2
    assert found.give_up_rate == pytest.approx(2 / 3)
    assert found.execution_errors == 2 / 4
    assert found.diversity is None


def test_nothing_to_divide_by_gives_none() -> None:
    empty = behaviour([])
    assert empty.rollouts == 0
    assert empty.model_dump(exclude={"rollouts"}) == dict.fromkeys(empty.model_dump(exclude={"rollouts"}))
    silent = behaviour([rollout(success=False)])
    assert (silent.multi_cell_turns, silent.execution_errors, silent.give_up_rate) == (None, None, None)
    assert silent.doc_lookups == 0


def test_giving_up_by_the_endpoint_sets() -> None:
    """a and b fail; b fails again (not newly); a recovers; c never failed; b is given up."""
    turns = [turn("a", "b", failed=True), turn("b", failed=True), turn("a", "c"), turn("c")]
    assert give_up_rate([turns]) == pytest.approx(1 / 2)


def test_an_endpoint_may_fail_and_recover_twice() -> None:
    assert give_up_rate([[turn("a", failed=True), turn("a"), turn("a", failed=True), turn("a")]]) == 0


def test_endpoints_recover_within_their_own_episode_only() -> None:
    assert give_up_rate([[turn("a", failed=True)], [turn("a")]]) == 1


@given(st.lists(st.lists(st.tuples(st.lists(st.sampled_from("abc")), st.booleans()), max_size=8), max_size=5))
def test_the_give_up_rate_is_a_share(episodes: list[list[tuple[list[str], bool]]]) -> None:
    rate = give_up_rate([[turn(*calls, failed=failed) for calls, failed in episode] for episode in episodes])
    assert rate is None or 0 <= rate <= 1


def test_diversity_counts_distinct_sequences_of_the_successes_of_one_task() -> None:
    rollouts = [
        rollout(turn("a"), turn("b"), task="t1"),
        rollout(turn("a", "b"), task="t1"),  # the same sequence in fewer turns
        rollout(turn("b"), turn("a"), task="t1"),
        rollout(turn("x"), task="t1", success=False),
        rollout(turn("a"), task="t2"),  # a single success carries no information
        rollout(turn("a"), task="t3"),
        rollout(turn("b"), task="t3"),
    ]
    assert diversity(rollouts) == pytest.approx((2 + 2) / (3 + 2))
