"""A JVM of ScienceWorld that is killed in mid-episode: the rollout is played again, and counted."""

import os
import signal

import pytest

from tasks.core.config.collection import AgentLimits
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.recital import oracle_engine
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.rollouts.scheduler import CollectionStats
from tasks.core.worlds.scienceworld.episode import ScienceEpisode
from tasks.core.worlds.scienceworld.settings import ScienceWorldConfig
from tasks.core.worlds.scienceworld.tasks import listed
from tasks.core.worlds.scienceworld.world import ScienceWorld
from tests.core.worlds.scienceworld.conftest import PLANT, PLANT_GOLD, new_pool

pytestmark = pytest.mark.scienceworld


class Killing(ScienceWorld):
    """Kills the JVM of the first episode right after its opening."""

    killed = False

    def open(self, task_id: str, seed: int) -> ScienceEpisode:
        episode = super().open(task_id, seed)
        if not self.killed:
            self.killed = True
            os.kill(self._pool.processes[0].jvm_pid, signal.SIGKILL)
        return episode


def test_a_rollout_whose_jvm_died_is_played_again_and_counted(chat: ChatFormat) -> None:
    name, variation = PLANT
    task = listed("train", 0, type=name, variation=variation, instruction="recorded", gold=PLANT_GOLD)
    world = Killing({"train": [task]}, new_pool(), ScienceWorldConfig())
    settings = PlaySettings(1.0, AgentLimits(max_turns=120), max_concurrent_episodes=1, world_retries=1)
    stats = CollectionStats()
    try:
        planned = plan_rollouts(world.tasks("train"), 1, seed=0)
        rows = play_rollouts(world, oracle_engine(world, chat), chat, planned, settings, policy=None, stats=stats)
    finally:
        world.close()
    assert stats.world_retries == 1 and world.killed
    assert [(row["end_reason"], row["success"], row["return"]) for row in rows] == [("completed", True, 1.0)]
