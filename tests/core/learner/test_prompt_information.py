"""Mutual information of prompts and responses: the estimator by hand, the sample, and a real policy."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config.monitor import InformationConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.distributed import SINGLE
from tasks.core.learner.learner import prepare_forward
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout
from tasks.core.learner.prompt_information import measure_information, mutual_information, sample_pairs
from tasks.core.records.training import PromptInformation


def information(logprobs: torch.Tensor, own: list[int]) -> PromptInformation:
    found = mutual_information(logprobs, own)
    assert found is not None
    return found


def test_log_probs_that_are_not_finite_give_no_information() -> None:
    assert mutual_information(torch.tensor([[float("nan"), 0.0]]), [0]) is None


def test_responses_that_only_their_own_prompt_explains_have_the_maximum() -> None:
    """p(z|x) is 1/2 under the own prompt and 0 under the other: log 1/2 - log 1/4 = log 2 nats, the maximum."""
    logprobs = torch.tensor([[0.5, 1e-30], [1e-30, 0.5]]).log()
    found = information(logprobs, [0, 1])
    assert found.nats == pytest.approx(math.log(2))
    assert (found.share, found.prompts, found.responses) == (pytest.approx(1), 2, 2)


def test_a_mixture_by_hand() -> None:
    """One response gives log 0.4 - log (0.4 + 0.1 + 0.1) / 3 = log 2, the other log 0.1 - log 0.2 = - log 2."""
    logprobs = torch.tensor([[0.4, 0.1, 0.1], [0.4, 0.1, 0.1]]).log()
    assert information(logprobs, [0, 0]).nats == pytest.approx(math.log(2), rel=1e-6)
    assert information(logprobs, [0, 1]).nats == pytest.approx(0, abs=1e-6)


matrices = st.integers(2, 5).flatmap(
    lambda prompts: st.lists(st.lists(st.floats(-50, 0), min_size=prompts, max_size=prompts), min_size=1, max_size=6)
)


@given(matrices, st.floats(-30, 30))
def test_it_is_bounded_and_only_differences_between_prompts_count(rows: list[list[float]], shift: float) -> None:
    logprobs, own = torch.tensor(rows, dtype=torch.float64), [0] * len(rows)
    found = information(logprobs, own)
    assert found.nats <= math.log(len(rows[0])) + 1e-9
    assert information(logprobs + shift, own).nats == pytest.approx(found.nats, abs=1e-9)
    assert information(logprobs[:, :1].expand(-1, 3), own).nats == pytest.approx(0, abs=1e-9)


def rollout(prompt: list[int], answer: list[int]) -> Rollout:
    """Return a rollout with a second turn, which must not matter."""
    ids = [*prompt, *answer, 9, 8]
    positions = [*range(len(prompt), len(prompt) + len(answer)), len(ids) - 1]
    turns = [0] * len(answer) + [1]
    return Rollout(
        np.array(ids), np.array(positions), np.array(turns), np.zeros(len(turns), dtype=np.float32), advantage=0.0
    )


BATCH = [rollout([1, 2], [3]), rollout([1, 2], [4]), rollout([5], [6, 7]), rollout([1, 2], [5])]


def test_a_sample_takes_first_turns_of_different_prompts_in_turn() -> None:
    prompts, pairs = sample_pairs(BATCH, InformationConfig(prompts=4), seed=1)
    assert sorted(prompts) == [(1, 2), (5,)]
    assert [prompts[own] for own, _ in pairs[:2]] == prompts, "one of each before a second one"
    assert prompts[pairs[2][0]] == (1, 2), "the other has no more"
    answers = {(1, 2): {(3,), (4,), (5,)}, (5,): {(6, 7)}}
    assert all(answer in answers[prompts[own]] for own, answer in pairs)
    assert len(set(pairs)) == 4
    assert sample_pairs(BATCH, InformationConfig(prompts=4), seed=1) == (prompts, pairs)


def test_a_sample_has_sixteen_first_turns_at_most() -> None:
    batch = [rollout([prompt], [answer]) for prompt in (1, 2, 3) for answer in range(10, 20)]
    _, pairs = sample_pairs(batch, InformationConfig(prompts=4), seed=1)
    assert len(set(pairs)) == 16


@pytest.mark.parametrize(("rollouts", "prompts"), [(BATCH[:2], 8), (BATCH, 0), ([], 8)])
def test_nothing_is_drawn_from_fewer_than_two_prompts(rollouts: list[Rollout], prompts: int) -> None:
    assert sample_pairs(rollouts, InformationConfig(prompts=prompts), seed=0) == ([], [])


def test_a_policy_read_in_packs_gives_what_one_sequence_at_a_time_gives(
    make_policy: Callable[..., torch.nn.Module],
) -> None:
    """Compare with log p(answer | prompt) by transformers' own forward pass, one sequence at a time."""
    policy, temperature = make_policy(), 0.7
    prompts, pairs = [(1, 2, 3), (4, 5)], [(0, (6, 7)), (1, (8,)), (0, (9, 10, 11))]
    rows = []
    for _, answer in pairs:
        row = []
        for prompt in prompts:
            with torch.no_grad():
                logits = policy(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1] / temperature
            row.append(float(logits.log_softmax(-1)[range(len(answer)), list(answer)].sum()))
        rows.append(row)
    config = UpdateConfig(tokens_per_pack=8)
    prepare_forward(policy, config, SINGLE)
    objective = Objective.of(config, 3, temperature)
    found = measure_information(policy, prompts, pairs, objective, config.tokens_per_pack, SINGLE)
    assert found is not None
    assert found.nats == pytest.approx(information(torch.tensor(rows), [0, 1, 0]).nats, abs=1e-5)
