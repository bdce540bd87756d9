"""Search many trees side by side: an episode plays one simulation of a tree, and the trees take their turns together.

To return to a state, a search opens the episode anew, with the same seed of the world, and plays the state's turns
again with ids and log-probs as they were sampled. It asks the engine for nothing, and tokenises only the world's texts.
In a world of chance every simulation has its own luck, and leaves the tree where luck leads to a new state. With the
same luck in all simulations, Q would show how a turn fared once.

A tree's choices follow from its own returns alone. So which trees share a batch decides only the last digits of
log-probs.
"""

from collections.abc import Iterable
from contextlib import closing

from tasks.core.config.collection import TreeConfig
from tasks.core.interfaces.world import OfChance, Task, World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.schemas import VOID_REASONS
from tasks.core.rollouts.episode import Collector, EpisodeEnd, EpisodeSteps, LiveRollout
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.seeding import derive_seed
from tasks.search_trees.tree import SearchTree, Walk


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
