"""A dev score does not move with the batch: verdicts, tokens and log-probs are the same at any concurrency."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config.collection import AgentLimits
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.loading import load_base_model
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.playing import play_rollouts
from tasks.core.seeding import derive_seed

from .core.engines.conftest import world as pocketworld

SHIPPED = Path(__file__).parents[1] / "data/base_policies/pocket"
TASKS = 9
world = pocketworld


@pytest.fixture(scope="module")
def engine() -> Iterator[TransformersEngine]:
    engine = TransformersEngine(load_base_model(SHIPPED, PolicyConfig(device="cpu")))
    yield engine
    engine.close()


def test_dev_at_concurrency_1_7_and_500_has_one_score_to_the_bit(world: World, engine: TransformersEngine) -> None:
    chat, limits = load_chat_format(SHIPPED), AgentLimits(max_turns=5, max_tokens_per_turn=64)
    seed = derive_seed(0, "evaluation", 0)
    planned = [PlannedRollout(task, 0, derive_seed(seed, task.task_id)) for task in world.tasks("dev")[:TASKS]]

    def played(at_once: int) -> list[dict[str, Any]]:
        settings = PlaySettings(0.5, limits, max_concurrent_episodes=at_once, world_retries=0)
        return play_rollouts(world, engine, chat, planned, settings, policy=None)

    one, seven, all_at_once = played(1), played(7), played(500)
    assert len(one) == TASKS and sum(len(row["token_ids"]) for row in one) > 50 * TASKS
    assert one == seven == all_at_once
