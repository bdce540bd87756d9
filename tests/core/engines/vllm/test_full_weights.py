"""Fully trained policies, each a server of its own, and a context that fills up in the middle of an episode."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file

from tasks.core.config.collection import AgentLimits
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import OPTIMIZER
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.records.delivery_probe import mean_difference
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
POLICY = PolicyConfig(device="cpu", trained="full")
CONTEXT = 96
SETTINGS = PlaySettings(1.0, AgentLimits(max_turns=6, max_tokens_per_turn=40), 16, 1)


@pytest.fixture(scope="module")
def full_engine(chat: ChatFormat, servers: Callable[[], list[psutil.Process]]) -> Iterator[VllmEngine]:
    engine = open_vllm(VllmConfig(context_length=CONTEXT), POLICY, SHIPPED, chat)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All weights a little beside the base's, and the optimizer's beside them, as the learner writes a checkpoint."""
    folder = tmp_path_factory.mktemp("full")
    policy = trainable_policy(load_base_model(SHIPPED, POLICY), POLICY, None, 0)
    generator = torch.Generator().manual_seed(1)
    for weight in policy.parameters():
        weight.data += 0.02 * weight.data.std() * torch.randn(weight.shape, generator=generator)
    save_policy(policy, folder)
    save_file({"embed_tokens.weight.exp_avg": torch.zeros(2, 2)}, folder / OPTIMIZER)
    return folder


def play(engine: VllmEngine, chat: ChatFormat, world: World, policy: Path | None) -> list[dict[str, Any]]:
    planned = plan_rollouts(world.tasks("train")[:4], 3, seed=2)
    rows = play_rollouts(world, engine, chat, planned, SETTINGS, policy=policy)
    assert len(rows) == len(planned)
    return rows


def difference(rows: list[dict[str, Any]], policy: Path | None) -> float:
    """Largest mean |engine - full forward pass| over the sampled tokens of a rollout."""
    local, found = LocalModel(SHIPPED, POLICY), []
    for row in rows:
        ((full,),) = local.readings([policy], [row["token_ids"]])
        sampled = [place for place, mine in enumerate(row["policy_mask"]) if mine]
        found.append(
            mean_difference([full[place - 1] for place in sampled], [row["engine_logprobs"][p] for p in sampled])
        )
    return max(found)


def test_a_fully_trained_policy_is_what_is_sampled_from(
    full_engine: VllmEngine, chat: ChatFormat, world: World, checkpoint: Path
) -> None:
    rows = play(full_engine, chat, world, checkpoint)
    assert difference(rows, checkpoint) < 1e-4
    assert difference(rows, None) > 1e-3
    assert difference(play(full_engine, chat, world, None), None) < 1e-4


def test_a_context_that_fills_up_ends_the_episode_and_loses_nothing(
    full_engine: VllmEngine, chat: ChatFormat, world: World
) -> None:
    rows = play(full_engine, chat, world, None)
    full = [row for row in rows if row["end_reason"] == "context_limit"]
    assert full and full_engine.context_length == CONTEXT
    for row in full:
        columns = [row[name] for name in ("token_ids", "policy_mask", "turn_index", "engine_logprobs")]
        assert {len(column) for column in columns} == {len(row["token_ids"])}
        assert len(row["token_ids"]) <= CONTEXT
        assert row["policy_mask"][-1], "an observation that the policy never saw is not kept"
        assert row["tests_passed"] or row["tests_failed"], "what was done until then is evaluated"
        assert row["return"] == 0
