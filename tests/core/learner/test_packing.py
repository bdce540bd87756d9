from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.learner.distributed import ProcessGroup
from tasks.core.learner.packing import (
    Rollout,
    first_epoch,
    first_fit_decreasing,
    pack_rollouts,
    read_rollouts,
    spread,
    waste,
)
from tasks.core.records.schemas import TRAINING_BATCH

CPU = torch.device("cpu")


def test_bins_by_hand() -> None:
    assert first_fit_decreasing([4, 8, 1, 4, 2, 1], 10) == [[1, 4], [0, 3, 2, 5]]
    assert first_fit_decreasing([30, 5], 10) == [[0], [1]]
    assert first_fit_decreasing([], 10) == []


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 40))
def test_every_item_lies_in_one_bin_that_holds_it(lengths: list[int], capacity: int) -> None:
    bins = first_fit_decreasing(lengths, capacity)
    assert sorted(item for members in bins for item in members) == list(range(len(lengths)))
    assert all(len(members) == 1 or sum(lengths[item] for item in members) <= capacity for members in bins)
    halves = [members for members in bins if sum(lengths[item] for item in members) * 2 <= capacity]
    assert len(halves) <= 1


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 40), st.integers(2, 5))
def test_rounds_hold_every_item_once_and_a_bin_for_every_rank(lengths: list[int], capacity: int, ranks: int) -> None:
    bins = spread(lengths, capacity, ranks)
    assert sorted(item for members in bins for item in members) == list(range(len(lengths)))
    assert all(len(members) < 2 or sum(lengths[item] for item in members) <= capacity for members in bins)
    assert len(bins) % ranks == 0
    assert 0 <= waste(lengths, bins, ranks) < 1
    assert all(any(bins[start : start + ranks]) for start in range(0, len(bins), ranks)) or not lengths


def test_rounds_by_hand() -> None:
    assert spread([6, 5, 4, 3, 2], 10, 2) == [[0, 2], [1, 3, 4]]
    assert waste([6, 5, 4, 3, 2], [[0, 3], [1, 2, 4]], 2) == pytest.approx(1 - 20 / 22)
    # The long item sets the length of its round, so the round fills the other rank up.
    assert spread([9, 3, 3, 3, 3, 1], 10, 2) == [[0], [1, 2, 3], [4], [5]]
    assert spread([7], 10, 3) == [[0], [], []]


def test_minibatches_of_32_waste_under_5_percent_on_up_to_8_ranks() -> None:
    """Lengths as in AppWorld at a context of 32K: 2,000 to 32,000 tokens, 12,000 on average."""
    random = np.random.default_rng(1)
    for ranks in (2, 4, 8):
        shares = []
        for _ in range(20):
            lengths = np.clip(random.lognormal(9.3, 0.6, 32), 2000, 32_000).astype(int).tolist()
            shares.append(waste(lengths, spread(lengths, 32_768, ranks), ranks))
        assert np.mean(shares) < 0.05, (ranks, np.mean(shares))


def test_the_ranks_packs_hold_every_rollout_once_and_padding_packs_count_for_nothing(
    make_rollouts: Callable[..., list[Rollout]],
) -> None:
    rollouts = make_rollouts(7)
    shares = [pack_rollouts(rollouts, range(7), 40, CPU, ProcessGroup(rank=rank, size=3)) for rank in range(3)]
    assert len({len(packs) for packs in shares}) == 1
    packs = [pack for packs in shares for pack in packs]
    assert sorted(row for pack in packs if not pack.is_padding for row in pack.rows) == list(range(7))
    (alone,) = pack_rollouts(rollouts, [4], 40, CPU, ProcessGroup(rank=0, size=2))
    (padding,) = pack_rollouts(rollouts, [4], 40, CPU, ProcessGroup(rank=1, size=2))
    assert (alone.is_padding, padding.is_padding, padding.rows) == (False, True, (4,))


def test_a_pack_by_hand() -> None:
    first = Rollout(np.array([9, 8, 7, 6, 5]), np.array([2, 3]), np.array([0, 0]), np.array([-1, -2], np.float32), 1.0)
    second = Rollout(np.array([1, 2, 3, 4]), np.array([1, 3]), np.array([0, 1]), np.array([-3, -4], np.float32), -1.0)
    (pack,) = pack_rollouts([first, second], [1, 0], 100, CPU)
    assert (pack.rows, pack.lengths) == ((1, 0), (3, 3))
    assert pack.input_ids.tolist() == [[1, 2, 3, 9, 8, 7]]
    assert pack.position_ids.tolist() == [[0, 1, 2, 0, 1, 2]]
    assert pack.logit_positions.tolist() == [0, 2, 4, 5]
    assert pack.targets.tolist() == [2, 4, 7, 6]
    assert pack.rollout_ids.tolist() == [0, 0, 1, 1]
    assert pack.turns.tolist() == [0, 1, 0, 0]
    assert (pack.policy_tokens, pack.turn_count) == ([2, 2], 3)
    assert pack.advantages.tolist() == [-1.0, -1.0, 1.0, 1.0]
    assert pack.behaviour_logprobs.tolist() == [-3.0, -4.0, -1.0, -2.0]


def test_every_predictor_lies_one_before_its_target(make_rollouts: Callable[..., list[Rollout]]) -> None:
    rollouts = make_rollouts(20)
    for pack in pack_rollouts(rollouts, range(20), 50, CPU):
        rows = torch.cat([torch.from_numpy(rollouts[row].token_ids[1 : rollouts[row].length + 1]) for row in pack.rows])
        assert torch.equal(rows[pack.logit_positions], pack.targets)


def batch(**columns: list[object]) -> pa.Table:
    row = {
        "task_id": ["t", "t"],
        "rollout_index": [0, 1],
        "token_ids": [[1, 2, 3], [4, 5]],
        "policy_mask": [[False, True, True], [False, False]],
        "turn_index": [[-1, 0, 1], [-1, -1]],
        "engine_logprobs": [[0.0, -1.0, -2.0], [0.0, 0.0]],
        "sequence_begins": [[0], [0]],
        "return": [1.0, 0.0],
        "advantage": [0.5, -0.5],
    }
    cells = {**row, **columns}
    return pa.table(cells, schema=pa.schema([TRAINING_BATCH.field(name) for name in cells]))


def test_rows_become_rollouts_and_those_without_a_sampled_token_are_left_out() -> None:
    (rollout,) = read_rollouts(batch())
    assert rollout.token_ids.tolist() == [1, 2, 3]
    assert rollout.policy_positions.tolist() == [1, 2]
    assert rollout.turns.tolist() == [0, 1]
    assert rollout.engine_logprobs.tolist() == [-1, -2]
    assert (rollout.advantage, rollout.length) == (0.5, 2)


def test_rows_survive_a_table_of_several_chunks() -> None:
    table = pa.concat_tables([batch(), batch(advantage=[0.25, 0.0])])
    assert [rollout.advantage for rollout in read_rollouts(table.slice(2))] == [0.25]
    assert [rollout.token_ids.tolist() for rollout in read_rollouts(table)] == [[1, 2, 3], [1, 2, 3]]


def test_the_first_epoch_ends_with_its_last_rollout_whatever_the_number_of_minibatches_in_later_ones() -> None:
    """Use pairs, which stay whole and fill three minibatches in one order and two in another."""
    first = [[0, 1], [2, 3], [4]]
    assert first_epoch([*first, [3, 2, 4], [0, 1]], 5) == first
    assert first_epoch(first, 5) == first
