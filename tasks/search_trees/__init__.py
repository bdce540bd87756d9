"""Stage search_trees@i: play the iteration's tasks as trees of turns, in place of collect_rollouts.

An episode plays one simulation of a tree, and the trees take their turns together. To return to a state, a search opens
the episode anew, with the same seed of the world, and plays the state's turns again with ids and log-probs as they were
sampled. It asks the engine for nothing, and tokenises only the world's texts. In a world of chance every simulation has
its own luck, and leaves the tree where luck leads to a new state. With the same luck in all simulations, Q would show
how a turn fared once.

A tree's choices follow from its own returns alone. So which trees share a batch decides only the last digits of
log-probs.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from tasks.core.config.collection import TreeConfig
from tasks.core.config.stage_inputs import SearchInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import OfChance, Task, World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.rollouts.episode import Collector, EpisodeEnd, EpisodeSteps, LiveRollout
from tasks.core.rollouts.iteration import collection_seed, tasks_of_iteration, write_played
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.playing import warm_world
from tasks.core.rollouts.shards import play_in_shards
from tasks.core.seeding import derive_seed
from tasks.search_trees.tree import SearchTree, Walk

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


def first_simulations(world: World, tasks: Iterable[Task], seed: int) -> list[PlannedRollout]:
    """Return the simulations with which the trees of the tasks begin."""
    of_chance = isinstance(world, OfChance) and world.is_of_chance
    return [simulation(task, derive_seed(seed, task.task_id), 0, of_chance=of_chance) for task in tasks]


def simulation(task: Task, tree_seed: int, number: int, *, of_chance: bool) -> PlannedRollout:
    """Return simulation `number` of a task's tree. All have the same world seed, except in worlds of chance."""
    world_seed = None if of_chance else tree_seed
    return PlannedRollout(task, number, derive_seed(tree_seed, number), world_seed=world_seed, tree_seed=tree_seed)


class Forest(Collector):
    """The trees of a shard: one row for each simulation of each of its tasks."""

    def __init__(self, config: TreeConfig) -> None:
        self._config = config
        self._trees: dict[str, SearchTree] = {}

    def begin(self, rollout: LiveRollout, world: World, chat: ChatFormat, settings: PlaySettings) -> EpisodeSteps:
        """Return an episode of the next simulation in the tree of the rollout's task."""
        planned = rollout.planned
        tree = self._trees.setdefault(
            planned.task.task_id, SearchTree(self._config, of_chance=planned.world_seed is None)
        )
        return simulate(rollout, tree, super().begin(rollout, world, chat, settings), chat)

    def after(self, planned: PlannedRollout, end: EpisodeEnd) -> PlannedRollout | None:
        """Return the next simulation of the tree; None when it is over: all played or tried, or the world broke."""
        task, number, seed = planned.task, planned.rollout_index + 1, planned.tree_seed
        if seed is None or number == self._config.simulations or end.end_reason in VOID_REASONS:
            return None
        tree = self._trees[task.task_id]
        return None if tree.is_exhausted else simulation(task, seed, number, of_chance=tree.of_chance)


def simulate(rollout: LiveRollout, tree: SearchTree, episode: EpisodeSteps, chat: ChatFormat) -> EpisodeSteps:
    """Play `episode` as a simulation in `tree`, and request only those turns that the tree does not choose itself.

    When it is over, its turns and its return enter the tree, and the nodes enter the transcript. Raises WorldFault when
    the search returns to a state and meets another one.
    """
    walk = Walk(tree)
    with closing(episode):
        try:
            request = next(episode)
            while True:
                walk.arrive(request.messages)
                turn = walk.choice()
                sampled = turn is None
                if turn is None:
                    turn = yield request
                if turn.stop_reason != "context":
                    walk.go(turn, chat.kept_ids(turn.token_ids), sampled=sampled)
                request = episode.send(turn)
        except StopIteration as over:
            end: EpisodeEnd = over.value
    if end.end_reason != "context_limit":
        walk.arrive(None)
    rollout.transcript.tree_nodes = walk.back_up(end.episode_return)
    return end
