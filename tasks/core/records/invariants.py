"""Rules that connect the columns of a row, the tokens of a list or the rows of a table.

pandera checks each column on its own (type, range, allowed values): see `schemas.checks`. Every rule here is a
vectorised function over flattened lists that reports the first row that breaks it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.records.schemas import SEQUENCES, TOKEN_COLUMNS, TURN_COLUMNS, UNJUDGED, VOID_REASONS, key_columns

ROUNDING = 1e-5
"""A log-prob may exceed 0 by this much: float32 logits minus their float32 log-sum-exp."""

Flat = npt.NDArray[Any]


def broken_rules(table: pa.Table) -> Iterator[str]:
    """Yield the rules that the table breaks, as "row 3, column x: ..."; token rules stop at the first broken rule.

    The table's column types must already have been checked against one of `schemas`.
    """
    nulls = list(_nulls(table))
    yield from nulls
    if nulls:
        return
    yield from _infinite_numbers(table)
    yield from _repeated_rows(table)
    if "weight" in table.column_names:
        yield from _weights(table)
    if "end_reason" in table.column_names:
        yield from _returns(table)
    for name in sorted(TURN_COLUMNS.intersection(table.column_names)) if "turns" in table.column_names else ():
        yield from _one_per_turn(table, name)
    if "turns" in table.column_names:
        yield from _unanswered_turns(table)
    if "token_ids" in table.column_names:
        yield from _tokens(table)
    if "pair" in table.column_names:
        yield from _pairs(table)


def _nulls(table: pa.Table) -> Iterator[str]:
    for name in table.column_names:
        row = _first_null(table[name].combine_chunks())
        if row is not None:
            yield f"row {row}, column {name}: null is not allowed"


def _first_null(array: pa.Array) -> int | None:
    """Return the row of the first null at any depth of lists and structs."""
    if array.null_count:
        return int(pc.index(pc.is_null(array), True).as_py())
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        item = _first_null(array.flatten())
        return None if item is None else int(pc.list_parent_indices(array)[item].as_py())
    children = array.flatten() if pa.types.is_struct(array.type) else []
    rows = [row for row in map(_first_null, children) if row is not None]
    return min(rows, default=None)


def _infinite_numbers(table: pa.Table) -> Iterator[str]:
    for field in table.schema:
        if pa.types.is_floating(field.type):
            values = table[field.name].to_numpy()
            for row in np.flatnonzero(~np.isfinite(values))[:1]:
                yield f"row {row}, column {field.name}: {values[row]} is not a finite number"


def _repeated_rows(table: pa.Table) -> Iterator[str]:
    """Check that (task_id, rollout_index, ...) identifies a row, so it occurs only once."""
    columns = key_columns(table.schema)
    seen: dict[tuple[object, ...], int] = {}
    for row, key in enumerate(zip(*(table[name].to_pylist() for name in columns), strict=True)):
        first = seen.setdefault(key, row)
        if first != row:
            yield f"row {row}: repeats ({', '.join(columns)}) = {key} of row {first}"
            return


def _weights(table: pa.Table) -> Iterator[str]:
    total = float(np.sum(table["weight"].to_numpy()))
    if table.num_rows and not abs(total - 1) <= 1e-9:
        yield f"column weight: the weights sum to {total}, not to 1"


def _returns(table: pa.Table) -> Iterator[str]:
    """Check that only judged episodes have a return, and that a success has passed tests and no failed test."""
    unjudged = pc.is_in(table["end_reason"], pa.array(UNJUDGED)).to_numpy()
    returns = (table["return"].to_numpy() != 0) & unjudged
    passed, failed = (pc.list_value_length(table[name]).to_numpy() for name in ("tests_passed", "tests_failed"))
    contradiction = table["success"].to_numpy() & ((failed > 0) | (passed == 0) | unjudged)
    for row in np.flatnonzero(returns)[:1]:
        yield f"row {row}, column return: must be 0, the episode ended by {table['end_reason'][row]}"
    for row in np.flatnonzero(contradiction)[:1]:
        yield f"row {row}, column success: true, but nothing was left to judge, a test failed or none passed"


def _one_per_turn(table: pa.Table, name: str) -> Iterator[str]:
    turns, given = (pc.list_value_length(column).to_numpy() for column in (table["turns"], table[name]))
    for row in np.flatnonzero(turns != given)[:1]:
        yield f"row {row}, column {name}: {given[row]} values for {turns[row]} turns"
    for item in np.flatnonzero(~np.isfinite(_flat(table, name)))[:1]:
        row = pc.list_parent_indices(table[name].combine_chunks())[item].as_py()
        yield f"row {row}, column {name}: not a finite number"


def _unanswered_turns(table: pa.Table) -> Iterator[str]:
    """Check that the world answered every sampled turn, except possibly the last turn of a void rollout."""
    counts = pc.list_value_length(table["turns"]).to_numpy()
    void = pc.is_in(table["end_reason"], pa.array(VOID_REASONS)).to_numpy()
    rows = pc.list_parent_indices(table["turn_index"].combine_chunks()).to_numpy()
    turns = _flat(table, "turn_index")
    for token in np.flatnonzero(turns >= (counts + void)[rows])[:1]:
        row = rows[token]
        yield f"row {row}, column turn_index: turn {turns[token]} of a rollout with {counts[row]} turns"


def _tokens(table: pa.Table) -> Iterator[str]:
    lengths = {name: pc.list_value_length(table[name]).to_numpy() for name in TOKEN_COLUMNS}
    expected = lengths["token_ids"]
    for name, length in lengths.items():
        for row in np.flatnonzero(length != expected)[:1]:
            yield f"row {row}, column {name}: {length[row]} values for {expected[row]} token_ids"
            return
    ends = np.cumsum(expected)
    unlike = list(_broken_sequences(table, ends - expected, ends))
    yield from unlike
    if unlike:
        return
    for name, rule, position in _broken_tokens(table, ends):
        row = int(np.searchsorted(ends, position, side="right"))
        token = position - int(ends[row] - expected[row])
        yield f"row {row}, column {name}, token {token}: {rule}"
    if "advantage" in table.column_names:
        yield from _rollouts_without_policy_tokens(table, ends - expected, ends)
    if "turn_advantages" in table.column_names:
        yield from _turns_without_advantage(table, ends)


def _broken_sequences(table: pa.Table, starts: Flat, ends: Flat) -> Iterator[str]:
    """Check that sequences begin at 0 and after each other, and that the policy sampled something in each of several.

    The policy cannot have sampled a sequence's first token.
    """
    sampled = np.concatenate([[0], np.cumsum(_flat(table, "policy_mask"))])
    for row, begins in enumerate(table[SEQUENCES].to_pylist()):
        places = np.array([*begins, ends[row] - starts[row]]) + starts[row]
        if begins[:1] != [0] or (len(begins) > 1 and (np.diff(places) <= 0).any()):
            yield f"row {row}, column {SEQUENCES}: {begins}: must begin with 0 and rise within the row's tokens"
        elif len(begins) > 1 and (np.diff(sampled[places]) == 0).any():
            yield f"row {row}, column {SEQUENCES}: {begins}: a sequence in which the policy sampled nothing"
        elif places[0] < places[-1] and (sampled[places[:-1] + 1] > sampled[places[:-1]]).any():
            yield f"row {row}, column policy_mask: the first token of a sequence is marked as sampled by the policy"


def _broken_tokens(table: pa.Table, ends: npt.NDArray[np.int64]) -> Iterator[tuple[str, str, int]]:
    """Yield (column, rule, flat position of the first token that breaks it)."""
    ids, mask, turn, logprob = (_flat(table, name) for name in TOKEN_COLUMNS)
    finite = np.isfinite(logprob)
    rules = (
        ("token_ids", "a token id is not negative", ids < 0),
        ("turn_index", "turn_index is 0 or more exactly where policy_mask is true, else -1", (turn >= 0) != mask),
        ("turn_index", "turn_index is 0 or more exactly where policy_mask is true, else -1", turn < -1),
        ("engine_logprobs", "a log-prob is finite and at most 0", ~finite | (logprob > ROUNDING)),
        ("engine_logprobs", "the log-prob of a token that was not sampled is 0", ~mask & (logprob != 0)),
    )
    for name, rule, broken in rules:
        for position in np.flatnonzero(broken)[:1]:
            yield name, rule, int(position)
    policy = np.flatnonzero(mask)
    rows = np.searchsorted(ends, policy, side="right")
    falls = (np.diff(turn[policy]) < 0) & (np.diff(rows) == 0)
    for index in np.flatnonzero(falls)[:1]:
        yield "turn_index", "turn_index does not fall within a rollout", int(policy[index + 1])


def _rollouts_without_policy_tokens(table: pa.Table, starts: Flat, ends: Flat) -> Iterator[str]:
    before = np.concatenate([[0], np.cumsum(_flat(table, "policy_mask"))])
    for row in np.flatnonzero(before[ends] == before[starts])[:1]:
        yield f"row {row}, column policy_mask: a training rollout has at least one policy token"


def _turns_without_advantage(table: pa.Table, ends: Flat) -> Iterator[str]:
    """Check that every turn with policy tokens has an advantage, and that it is a finite number."""
    counts = pc.list_value_length(table["turn_advantages"]).to_numpy()
    rows = np.searchsorted(ends, np.arange(len(_flat(table, "turn_index"))), side="right")
    for token in np.flatnonzero(_flat(table, "turn_index") >= counts[rows])[:1]:
        yield f"row {rows[token]}, column turn_advantages: {counts[rows[token]]} values, too few for its turns"
    for position in np.flatnonzero(~np.isfinite(_flat(table, "turn_advantages")))[:1]:
        row = int(np.searchsorted(np.cumsum(counts), position, side="right"))
        yield f"row {row}, column turn_advantages: not a finite number"


def _pairs(table: pa.Table) -> Iterator[str]:
    """Check that a pair consists of one better and one worse rollout."""
    numbers, advantages = table["pair"].to_numpy(), table["advantage"].to_numpy()
    for number in np.unique(numbers):
        rows = np.flatnonzero(numbers == number)
        if sorted(np.sign(advantages[rows])) != [-1, 1]:
            yield f"row {rows[0]}, column pair: pair {number} is not one positive and one negative advantage"
            return


def _flat(table: pa.Table, name: str) -> Flat:
    return table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
