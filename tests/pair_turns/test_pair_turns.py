"""pair_turns on trees written by hand."""

from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.stage_inputs import PairInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import read_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import ROLLOUTS, TRAINING_BATCH
from tasks.core.records.tables import read_table, write_rows
from tasks.core.records.training import AdvantageSummary
from tasks.pair_turns import pair_turns
from tests.finished_run import Row, played_row

TURN = {"failed": False, "code_blocks": 1, "api_calls": [], "failed_api_calls": []}


def simulated(number: int, turns: list[int], nodes: list[int], episode_return: float, **more: Any) -> Row:
    """Return a rollout: an opening of one token, then turns of two that begin with `turns`, and replies of one."""
    ids, mask, index = [1], [False], [-1]
    for turn, first in enumerate(turns):
        ids += [first, 2, 3]
        mask += [True, True, False]
        index += [turn, turn, -1]
    tokens = {"token_ids": ids, "policy_mask": mask, "turn_index": index}
    logprobs = [-0.5 if sampled else 0.0 for sampled in mask]
    rest = {"engine_logprobs": logprobs, "turns": [TURN] * len(turns), "tree_nodes": nodes, "difficulty": 1}
    return played_row("t", "s", "train", episode_return, number, staleness=0, **tokens, **rest) | more


def paired(root: Path, rows: list[Row], **advantages: Any) -> tuple[list[Row], AdvantageSummary]:
    config = AdvantageConfig.model_validate({"pair_gap": 0.1, **advantages})
    context = StageContext(Layout(root), PairInputs(advantages=config), "i001")
    write_rows(context.layout.rollouts("i001"), rows, ROLLOUTS)
    pair_turns(context)
    batch = read_table(context.layout.training_batch("i001"), TRAINING_BATCH).to_pylist()
    return batch, read_document(context.layout.advantage_summary("i001"), AdvantageSummary)


TREE = [
    simulated(0, [7, 8], [1, 2], 1.0),
    simulated(1, [9, 8], [3, 4], 0.0),
    simulated(2, [7, 5], [1, 5], 0.5),
    simulated(3, [], [], 0.0, end_reason="world_fault", tests_failed=[]),
]


def test_a_tree_by_hand(tmp_path: Path) -> None:
    """At the root, 7 has Q (1 + 0.5) / 2 and 9 has 0; after 7, 8 has 1 and 5 has 0.5."""
    batch, summary = paired(tmp_path, TREE)
    found = [
        (r["rollout_index"], r["token_ids"], r["turn_index"], r["return"], r["advantage"], r["pair"]) for r in batch
    ]
    assert found == [
        (0, [1, 7, 2], [-1, 0, 0], 0.75, 1.0, 0),
        (1, [1, 9, 2], [-1, 0, 0], 0.0, -1.0, 0),
        (0, [1, 7, 2, 3, 8, 2], [-1, -1, -1, -1, 1, 1], 1.0, 1.0, 1),
        (2, [1, 7, 2, 3, 5, 2], [-1, -1, -1, -1, 1, 1], 0.5, -1.0, 1),
    ]
    assert batch[2]["engine_logprobs"] == [0, 0, 0, 0, -0.5, -0.5]
    assert (summary.rollouts, summary.finished_rollouts, summary.kept_rollouts, summary.note) == (4, 3, 3, None)
    assert summary.model_dump()["pairs"] == 2


def test_a_turn_of_a_later_sequence_is_learned_behind_what_it_saw(tmp_path: Path) -> None:
    batch, _ = paired(tmp_path, [row | {"sequence_begins": [0, 3]} if row["turns"] else row for row in TREE])
    assert [(row["token_ids"], row["turn_index"]) for row in batch[2:]] == [
        ([3, 8, 2], [-1, 1, 1]),
        ([3, 5, 2], [-1, 1, 1]),
    ]


def test_success_or_nothing_changes_q(tmp_path: Path) -> None:
    batch, _ = paired(tmp_path, TREE, returns="all_or_nothing")
    assert [row["return"] for row in batch] == [0.5, 0.0, 1.0, 0.0]


def test_no_pair_over_the_gap_is_logged_once_with_its_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batch, summary = paired(tmp_path, TREE, pair_gap=0.75)
    assert batch == [] and summary.kept_rollouts == 0
    (record,) = caplog.records
    assert record.getMessage() == f"i001: {summary.note}"
    assert "none of the 2 pairs of turns differs in Q by more than advantages.pair_gap = 0.75 (at most by 0.75)" in str(
        summary.note
    )


def test_rollouts_of_no_tree_and_trees_of_void_rollouts_are_one_error(tmp_path: Path) -> None:
    plain = {name: value for name, value in TREE[0].items() if name != "tree_nodes"}
    with pytest.raises(ArtifactError, match=r"rollouts.parquet: column tree_nodes: missing"):
        paired(tmp_path, [plain])
    with pytest.raises(ArtifactError, match=r"nothing to learn from: all 1 rollouts are void"):
        paired(tmp_path, [TREE[3] | {"turns": [TURN], "tree_nodes": [0]}])
