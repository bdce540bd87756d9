"""Solutions of a world's training tasks, recited through the agent loop: what a policy is to say, token by token."""

from tasks.core.config.collection import AgentLimits
from tasks.core.interfaces.world import World, WorldFault
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.supervised import Example
from tasks.core.recital import oracle_engine
from tasks.core.records.sequences import spans
from tasks.core.rollouts.planning import PlaySettings, draw_tasks, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats


def recited_examples(world: World, chat: ChatFormat, limits: AgentLimits, count: int, seed: int) -> list[Example]:
    """Recite the solutions of `count` training tasks, or of all where there are fewer; return those that solve theirs.

    They come in the order in which the tasks are drawn, an example for each sequence. Raises ValueError for a world
    without solutions, for one that does not show a task's, and where none solves its task within `limits`; WorldFault
    where the world breaks.
    """
    engine, tasks = oracle_engine(world, chat), world.tasks("train")
    drawn = draw_tasks(tasks, [1.0] * len(tasks), min(count, len(tasks)), seed)
    planned, stats = plan_rollouts(drawn, 1, seed), CollectionStats()
    settings = PlaySettings(1.0, limits, max_concurrent_episodes=1, world_retries=0)
    rows = play_rollouts(
        world, engine, chat, planned, settings, policy=None, description="recited solutions", stats=stats
    )
    for fault in stats.world_faults:
        raise WorldFault(fault)
    by_task = {row["task_id"]: row for row in rows}
    solved = [row for task in drawn if (row := by_task[task.task_id])["success"]]
    if not solved:
        raise ValueError(f"no recited solution of {len(drawn)} training tasks solves its task within collection.limits")
    return [
        Example(tuple(row["token_ids"][place]), tuple(row["policy_mask"][place]))
        for row in solved
        for place in spans(row["sequence_begins"], len(row["token_ids"]))
    ]
