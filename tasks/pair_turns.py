"""Stage pair_turns@i: the rollouts of searched trees -> pairs of turns to train on, in place of filter_advantages."""

import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.core.advantages.estimators import Floats, return_std
from tasks.core.advantages.groups import groups_of, summary_of
from tasks.core.advantages.outcomes import Outcomes, most_frequent_fault, read_outcomes
from tasks.core.config.stage_inputs import PairInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.documents import write_document
from tasks.core.records.files import ArtifactError
from tasks.core.records.schemas import ROLLOUTS, SEQUENCES, TOKEN_COLUMNS, TRAINING_BATCH
from tasks.core.records.tables import read_table, write_rows
from tasks.core.records.training import AdvantageSummary
from tasks.core.spread import ROUNDING

ROOT = 0
"""The node at which every path starts."""


@dataclass(frozen=True)
class Candidate:
    """A turn that was sampled at a node."""

    row: int
    """The first rollout that played the turn."""
    turn: int
    """Index of the turn in that rollout."""
    q: float
    """Mean return of the rollouts that continued with the turn."""


@dataclass(frozen=True)
class TurnPair:
    """The best and the worst turn of a node: of equals the earliest counts as better, the latest as worse."""

    better: Candidate
    worse: Candidate

    @property
    def gap(self) -> float:
        """Return the difference of their Q, never negative: values that differ by rounding alone are equal."""
        return max(0.0, self.better.q - self.worse.q)


def turn_pairs(
    rows: Sequence[int], paths: Sequence[Sequence[int]], turns: Sequence[Sequence[Hashable]], returns: Floats
) -> list[TurnPair]:
    """Return one pair for every node with two different turns, in the order of the nodes."""
    siblings: dict[int, list[Candidate]] = {}
    for (parent, _), candidate in sorted(_candidates(rows, paths, turns, returns).items(), key=lambda item: item[0]):
        siblings.setdefault(parent, []).append(candidate)
    return [
        TurnPair(max(candidates, key=_order), min(reversed(candidates), key=_order))
        for candidates in siblings.values()
        if len(candidates) > 1
    ]


def over_gap(pairs: Sequence[TurnPair], gap: float) -> list[TurnPair]:
    """Return the pairs whose Q differ by more than `gap`."""
    return [pair for pair in pairs if pair.gap > gap + ROUNDING]


def _order(candidate: Candidate) -> float:
    return round(candidate.q, 9)


def _candidates(
    rows: Sequence[int], paths: Sequence[Sequence[int]], turns: Sequence[Sequence[Hashable]], returns: Floats
) -> dict[tuple[int, int], Candidate]:
    """Return candidates by (node of the turn, first node to which it led: in a world of chance there are others)."""
    turn_of: dict[int, Hashable] = {}
    led_to: dict[tuple[int, Hashable], int] = {}
    first: dict[tuple[int, int], tuple[int, int]] = {}
    earned: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        for turn, (parent, node) in enumerate(pairwise((ROOT, *paths[row]))):
            # By the node first: the kept ids of two samples may be equal where the samples themselves are not.
            played = turn_of.setdefault(node, turns[row][turn])
            edge = parent, led_to.setdefault((parent, played), node)
            first.setdefault(edge, (row, turn))
            earned.setdefault(edge, []).append(float(returns[row]))
    return {
        edge: Candidate(*row_and_turn, sum(earned[edge]) / len(earned[edge])) for edge, row_and_turn in first.items()
    }


_log = logging.getLogger(__name__)


def pair_turns(context: StageContext[PairInputs]) -> None:
    """Write the pairs of turns whose Q differ by more than `advantages.pair_gap`.

    An empty batch is written too, and logged.

    Raises ArtifactError when the rollouts are missing, break their schema, belong to no tree, or are all void.
    """
    path, config = context.layout.rollouts(context.key), context.inputs.advantages
    rollouts = read_table(path, ROLLOUTS)
    if "tree_nodes" not in rollouts.column_names or config.pair_gap is None:
        raise ArtifactError(f"{path}: column tree_nodes: missing, so the table holds no turns of searched trees")
    outcomes = read_outcomes(rollouts)
    rewarded = outcomes.rewarded(config.returns, seed=0)  # nothing of a tree is drawn at random
    paths, turns = rollouts["tree_nodes"].to_pylist(), _sampled_turns(rollouts)
    try:
        trees = groups_of(outcomes)
    except ValueError as error:
        fault = most_frequent_fault(context.layout.timings(context.key))
        raise ArtifactError(f"{path}: {error}{fault}") from None
    pairs = [pair for rows in trees for pair in turn_pairs(rows.tolist(), paths, turns, rewarded.returns)]
    chosen = over_gap(pairs, config.pair_gap)
    stds = np.array([return_std(rewarded.returns[rows]) for rows in trees if len(rows) > 1])
    summary = _summary(outcomes, stds, pairs, chosen, config.pair_gap)
    if summary.note:
        _log.warning("%s: %s", context.key, summary.note)
    write_rows(context.layout.training_batch(context.key), list(_batch(rollouts, chosen)), TRAINING_BATCH)
    write_document(context.layout.advantage_summary(context.key), summary)


def _summary(
    outcomes: Outcomes, stds: np.ndarray, pairs: Sequence[TurnPair], chosen: Sequence[TurnPair], gap: float
) -> AdvantageSummary:
    kept = np.zeros(len(outcomes.returns), dtype=np.bool_)
    kept[[candidate.row for pair in chosen for candidate in (pair.better, pair.worse)]] = True
    widest = max((pair.gap for pair in pairs), default=0.0)
    note = (
        f"none of the {len(pairs)} pairs of turns differs in Q by more than advantages.pair_gap = {gap} (at most by "
        f"{widest:.3g}): the policy will stay as it is; lower the gap, or search longer (collection.tree.simulations)"
    )
    figures = {"compared_turns": len(pairs), "pairs": len(chosen), "widest_gap": widest}
    return summary_of(outcomes, stds, kept, None if chosen else note, **figures)


def _sampled_turns(rollouts: pa.Table) -> list[list[bytes]]:
    """Return the ids of each turn [N][turns] as bytes."""
    tokens = zip(rollouts["token_ids"], rollouts["turn_index"], strict=True)
    arrays = ((ids.values.to_numpy(False), index.values.to_numpy(False)) for ids, index in tokens)
    return [[ids[index == turn].tobytes() for turn in range(index.max(initial=-1) + 1)] for ids, index in arrays]


def _batch(rollouts: pa.Table, pairs: Sequence[TurnPair]) -> Iterator[dict[str, Any]]:
    for number, pair in enumerate(pairs):
        yield _row(rollouts, pair.better) | {"advantage": 1.0, "pair": number}
        yield _row(rollouts, pair.worse) | {"advantage": -1.0, "pair": number}


def _row(rollouts: pa.Table, candidate: Candidate) -> dict[str, Any]:
    """Return what the turn saw, and the turn as it was sampled; everything before the turn is context."""
    task, index, begins = (rollouts[name][candidate.row].as_py() for name in ("task_id", "rollout_index", SEQUENCES))
    ids, _, turns, logprobs = (rollouts[name][candidate.row].values.to_numpy(False) for name in TOKEN_COLUMNS)
    end = int(np.flatnonzero(turns == candidate.turn)[-1]) + 1
    seen = slice(max(begin for begin in begins if begin < end), end)
    is_turn = turns[seen] == candidate.turn
    return {
        "task_id": task,
        "rollout_index": index,
        "token_ids": ids[seen],
        "policy_mask": is_turn,
        "turn_index": np.where(is_turn, turns[seen], -1),
        "engine_logprobs": np.where(is_turn, logprobs[seen], 0),
        SEQUENCES: [0],
        "return": candidate.q,
    }
