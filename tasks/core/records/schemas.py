"""The columns of every parquet artifact, as pyarrow schemas with pandera checks on top."""

import pandera.pyarrow as pandera
import pyarrow as pa

from tasks.core.config.splits import SPLITS

END_REASONS = (
    "completed",  # the agent ended the episode itself
    "turn_limit",
    "context_limit",
    "execution_timeout",  # the agent's code had to be killed
    "world_fault",  # the world broke; void, not the policy's fault
    "cut_by_early_stop",  # collection ended before this rollout did; void
)
VOID_REASONS = ("world_fault", "cut_by_early_stop")
UNJUDGED = ("execution_timeout", *VOID_REASONS)
"""Endings that leave no state to judge: the return is 0. Of the others, "completed" has the world's verdict; turn_limit
and context_limit have it if `collection.judge_unfinished` is set, else 0."""

TURN = pa.struct(
    [
        ("failed", pa.bool_()),
        ("code_blocks", pa.int32()),
        ("api_calls", pa.list_(pa.string())),
        ("failed_api_calls", pa.list_(pa.string())),
    ]
)
"""One played assistant turn, as reported by the world (see `Observation`)."""

TASKS = pa.schema(
    [
        ("task_id", pa.string()),
        ("scenario_id", pa.string()),
        ("difficulty", pa.int32()),
        ("weight", pa.float64()),  # probability of being drawn, sums to 1
    ]
)

PLAYED_ROLLOUTS = pa.schema(
    [
        ("task_id", pa.string()),
        ("scenario_id", pa.string()),
        ("split", pa.string()),
        ("difficulty", pa.int32()),
        ("rollout_index", pa.int32()),  # 0 .. K-1 within the task
        ("seed", pa.int64()),
        ("token_ids", pa.large_list(pa.int32())),  # exactly what the engine saw and sampled
        ("policy_mask", pa.large_list(pa.bool_())),  # True where the policy sampled the token
        ("turn_index", pa.large_list(pa.int32())),  # 0-based assistant turn of a policy token, else -1
        ("engine_logprobs", pa.large_list(pa.float32())),  # 0 where not sampled
        ("sequence_begins", pa.list_(pa.int32())),  # position of each sequence's first token; [0]: one conversation
        ("return", pa.float64()),  # R in [0, 1], score or share of unit tests; 0 where none counts, see UNJUDGED
        ("success", pa.bool_()),  # every unit test passed, and the verdict counts
        ("tests_passed", pa.list_(pa.string())),
        ("tests_failed", pa.list_(pa.string())),
        ("end_reason", pa.string()),
        ("turns", pa.list_(TURN)),
        ("world_retries", pa.int32()),
        ("adapter_digest", pa.string()),
        ("engine", pa.string()),
        ("engine_version", pa.string()),
        ("turn_rewards", pa.list_(pa.float64())),  # in the world's own unit, of a world that gives rewards
        ("turn_progress", pa.list_(pa.float64())),  # share of unit tests passed after each turn, where it is measured
    ]
)
"""Columns that the agent loop fills, whatever the rollout is played for."""

ROLLOUTS = PLAYED_ROLLOUTS.append(pa.field("staleness", pa.int32())).append(
    pa.field("tree_nodes", pa.list_(pa.int32()))  # node of the task's tree to which each turn led; 1 and more
)
"""Training rollouts; `staleness` counts updates between the policy that sampled and the policy that learns."""

TRAINING_BATCH = pa.schema(
    [
        ("task_id", pa.string()),
        ("rollout_index", pa.int32()),
        ("token_ids", pa.large_list(pa.int32())),
        ("policy_mask", pa.large_list(pa.bool_())),
        ("turn_index", pa.large_list(pa.int32())),
        ("engine_logprobs", pa.large_list(pa.float32())),
        ("sequence_begins", pa.list_(pa.int32())),
        ("return", pa.float64()),
        ("advantage", pa.float64()),
        ("turn_rewards", pa.list_(pa.float64())),  # as the rollouts have them
        ("turn_advantages", pa.large_list(pa.float64())),  # of each assistant turn, in place of the rollout's
        # Each pair is two rows: the better has a positive advantage, the worse a negative one. For a pair of turns,
        # each row
        # ends with its turn, whose tokens alone are policy tokens; `return` is then the turn's Q.
        ("pair", pa.int32()),
    ]
)

BASE_POLICY, SELECTED_POLICY = "base", "selected"
"""The two scored policies, as in the column `policy`."""

SCORED_ROLLOUTS = PLAYED_ROLLOUTS.append(pa.field("policy", pa.string())).append(pa.field("evaluation_run", pa.int32()))
"""Evaluation and score rollouts: which policy (one of the two, or an iteration key) and which evaluation run."""

OUTCOMES = pa.schema(
    [
        ("split", pa.string()),
        ("policy", pa.string()),  # BASE_POLICY or SELECTED_POLICY
        ("evaluation_run", pa.int32()),
        ("task_id", pa.string()),
        ("scenario_id", pa.string()),
        ("difficulty", pa.int32()),
        ("success", pa.bool_()),
    ]
)
"""Columns that a model version keeps from its scored rollouts: enough for every test between versions."""

TURN_COLUMNS = frozenset({"turn_rewards", "turn_progress", "tree_nodes"})
"""Optional lists with one value per turn."""
OPTIONAL_COLUMNS = TURN_COLUMNS | {"turn_advantages", "pair"}
"""Columns that exist only if a world or a method fills them."""

_share = pandera.Check.in_range(0, 1)
_CHECKS: dict[str, pandera.Check] = {
    "return": _share,
    "weight": _share,
    "difficulty": pandera.Check.in_range(1, 3),
    "rollout_index": pandera.Check.ge(0),
    "evaluation_run": pandera.Check.ge(0),
    "world_retries": pandera.Check.ge(0),
    "staleness": pandera.Check.ge(0),
    "pair": pandera.Check.ge(0),
    "split": pandera.Check.isin(SPLITS),
    "end_reason": pandera.Check.isin(END_REASONS),
}
TOKEN_COLUMNS = ("token_ids", "policy_mask", "turn_index", "engine_logprobs")
"""Lists with one value per token, equally long within a row: those of its sequences, one after the other."""
SEQUENCES = "sequence_begins"
"""The list of positions at which a row's sequences begin (see `records.sequences`)."""
_KEY = ("task_id", "rollout_index", "policy", "evaluation_run", "pair")


def key_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that together identify a row; no two rows share their values."""
    return [name for name in _KEY if name in schema.names]


def checks(schema: pa.Schema) -> pandera.DataFrameSchema:
    """Return the pandera schema of a parquet artifact: exact columns (except OPTIONAL_COLUMNS), types, value ranges.

    Nulls are left to `invariants`, which finds their row at any depth of a nested column.
    """
    columns = {
        field.name: pandera.Column(
            field.type, _CHECKS.get(field.name), nullable=True, required=field.name not in OPTIONAL_COLUMNS
        )
        for field in schema
    }
    return pandera.DataFrameSchema(columns, strict=True)
