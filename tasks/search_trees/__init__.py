"""Stage search_trees@i: play the iteration's tasks as trees of turns, in place of collect_rollouts."""

import logging
from collections.abc import Sequence
from typing import Any

from tasks.core.config.stage_inputs import SearchInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.rollouts.iteration import collection_seed, tasks_of_iteration, write_played
from tasks.core.rollouts.planning import PlaySettings
from tasks.core.rollouts.playing import warm_world
from tasks.core.rollouts.shards import play_in_shards
from tasks.core.seeding import derive_seed
from tasks.search_trees.searching import Forest, first_simulations

_log = logging.getLogger(__name__)


def search_trees(context: StageContext[SearchInputs]) -> None:
    """Write rollouts.parquet and timings.json of iteration `context.key`, with a row for each simulation of each tree.

    Raises ArtifactError for a damaged input, and ValueError for a policy that does not fit the base model.
    """
    inputs, layout, key = context.inputs, context.layout, context.key
    behaviour = inputs.previous[key].behaviour
    assert inputs.tree is not None, "the stage is there where trees are searched"
    world = warm_world(context)
    drawn = dict.fromkeys(tasks_of_iteration(world, layout, inputs, key, inputs.tree.simulations))
    seed = derive_seed(collection_seed(inputs, key), "trees")
    played = play_in_shards(
        context,
        first_simulations(world, drawn, seed),
        PlaySettings.of(inputs, inputs.temperature),
        policy=layout.policy(behaviour),
        description=f"search_trees@{key}",
        collector=Forest(inputs.tree),
    )
    _warn_of_cut_trees(played.rows, key)
    write_played(context, played)


def _warn_of_cut_trees(rows: Sequence[dict[str, Any]], key: str) -> None:
    cut = [row for row in rows if row["end_reason"] in VOID_REASONS]
    if cut:
        _log.warning(
            "search_trees@%s: %d trees ended early, the first that of %s after %d simulations: the world failed, or "
            "did not repeat itself for the same seed and turns, which is how a search returns to a state",
            key,
            len(cut),
            cut[0]["task_id"],
            cut[0]["rollout_index"],
        )
