"""Searching many trees side by side: of each, one simulation at a time is an episode among those of the others.

A state is come back to by opening the episode anew, with the same seed of the world, and playing its turns again: ids
and log-probs as they were sampled, nothing is asked of the engine and nothing tokenised again but what the world says.
In a world of chance every simulation has luck of its own, and leaves the tree where luck leads to a new state: with the
same luck in all of them, Q would say how a turn did once.
What one tree does follows from its own returns alone, so who is searched beside whom decides the last digits of
log-probs (a batch's make-up) and nothing else.
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
    """Simulations with which the trees of the tasks begin."""
    of_chance = isinstance(world, OfChance) and world.is_of_chance
    return [simulation(task, derive_seed(seed, task.task_id), 0, of_chance=of_chance) for task in tasks]


def simulation(task: Task, tree_seed: int, number: int, *, of_chance: bool) -> PlannedRollout:
    """Simulation `number` of a task's tree. The world's seed is the same in all of them, but for worlds of chance."""
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
    """Play `episode` as a simulation in `tree`: those turns are asked for that the tree does not choose itself.

    Its turns and its return enter the tree when it is over, and the nodes the transcript. Raises WorldFault when a
    state that is come back to is another one.
    """
    walk, transcript = Walk(tree), rollout.transcript
    with closing(episode):
        try:
            request = next(episode)
            while True:
                reply = tuple(request.prompt_ids[len(transcript.token_ids) :])
                walk.arrive(reply)
                turn = walk.choice()
                sampled = turn is None
                if turn is None:
                    turn = yield request
                else:
                    transcript.add_context(reply)
                if turn.stop_reason != "context":
                    walk.go(turn, chat.kept_ids(turn.token_ids), sampled=sampled)
                request = episode.send(turn)
        except StopIteration as over:
            end: EpisodeEnd = over.value
    if end.end_reason != "context_limit":
        walk.arrive(None)
    transcript.tree_nodes = walk.back_up(end.episode_return)
    return end
