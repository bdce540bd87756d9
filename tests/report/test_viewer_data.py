"""The list of rollouts, on those that trained."""

from pathlib import Path

from tasks.core.records.schemas import TRAINING_BATCH
from tasks.core.records.tables import write_rows
from tasks.report.viewer_data import BY_TURN, read_advantages

ROW = {
    "task_id": "a",
    "token_ids": [5, 6],
    "policy_mask": [False, True],
    "turn_index": [-1, 0],
    "engine_logprobs": [0.0, -0.5],
    "sequence_begins": [0],
    "return": 0.5,
}


def test_a_rollout_in_several_pairs_has_an_advantage_only_if_all_are_alike(tmp_path: Path) -> None:
    """In this searched tree, rollout 0 is better twice, 1 worse once, 2 worse, better and worse."""
    pairs = [(0, 1), (0, 2), (2, 3), (4, 2)]
    rows = [
        ROW | {"rollout_index": index, "advantage": advantage, "pair": number}
        for number, pair in enumerate(pairs)
        for index, advantage in zip(pair, (1.0, -1.0), strict=True)
    ]
    write_rows(tmp_path / "batch.parquet", rows, TRAINING_BATCH)
    found = {index: value for (_, index), value in read_advantages(tmp_path / "batch.parquet").items()}
    assert found == {0: 1.0, 1: -1.0, 2: BY_TURN, 3: -1.0, 4: 1.0}
