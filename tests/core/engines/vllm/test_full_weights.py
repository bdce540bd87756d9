"""Servers in the place of those that are shared: of full weights, of an exported model, and in bfloat16."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file

from tasks.core.config.collection import AgentLimits
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.client import WrongPolicy
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.exports.exported_policy import ExportedPolicy
from tasks.core.exports.logits_proof import conversation
from tasks.core.exports.model_folder import export_model
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import OPTIMIZER
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.records.delivery_probe import mean_difference
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tests.core.engines.vllm.conftest import POLICY, SHIPPED
from tests.core.engines.vllm.recorded_policies import moved, recorded

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

FULL = PolicyConfig(device="cpu", trained="full")
CONTEXT = 96
SETTINGS = PlaySettings(1.0, AgentLimits(max_turns=6, max_tokens_per_turn=40), 16, 1)


@pytest.fixture(scope="module")
def full_engine(chat: ChatFormat, servers: Callable[[], list[psutil.Process]]) -> Iterator[VllmEngine]:
    engine = open_vllm(VllmConfig(context_length=CONTEXT), FULL, SHIPPED, chat)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All weights a little beside the base's, and the optimizer's beside them, as the learner writes a checkpoint."""
    folder = tmp_path_factory.mktemp("full")
    policy = trainable_policy(load_base_model(SHIPPED, FULL), FULL, None, 0)
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
    local, found = LocalModel(SHIPPED, FULL), []
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


KNOBS = {"world.name": "pocketworld", "world.seed": "2502"}


def test_an_exported_folder_samples_as_base_and_adapter(
    adapters: Callable[..., Path], chat: ChatFormat, world: World, tmp_path: Path
) -> None:
    adapter, talk = adapters(3), conversation(range(1, 40), [place > 10 for place in range(39)])
    export_model(
        ExportedPolicy("a", "i001", SHIPPED, adapter, POLICY, KNOBS, (), None), tmp_path / "out", [talk], adapter=False
    )
    engine = open_vllm(VllmConfig(), POLICY, tmp_path / "out", chat)
    try:
        engine.load_adapter(None)
        planned = plan_rollouts(world.tasks("train")[:4], 2, seed=2)
        rows = play_rollouts(world, engine, chat, planned, SETTINGS, policy=None)
    finally:
        engine.close()
    local, trained, untrained = LocalModel(SHIPPED, POLICY), [], []
    for row in rows:
        sampled = [place for place, mine in enumerate(row["policy_mask"]) if mine]
        served = [row["engine_logprobs"][place] for place in sampled]
        for policy, found in ((adapter, trained), (None, untrained)):
            ((full,),) = local.readings([policy], [row["token_ids"]])
            found.append(mean_difference([full[place - 1] for place in sampled], served))
    print(f"mean |log-prob| apart: {max(trained):.2e} from base and adapter, {min(untrained):.2e} from the base")
    assert max(trained) < 1e-4
    assert min(untrained) > 1e-3


BF16 = PolicyConfig(device="cpu", dtype="bfloat16")
Write = Callable[..., Path]


@pytest.fixture(scope="module")
def bf16_engine(chat: ChatFormat) -> Iterator[VllmEngine]:
    engine = open_vllm(VllmConfig(sharing="alternate"), BF16, SHIPPED, chat)
    yield engine
    engine.sleep()
    engine.close()


@pytest.mark.usefixtures("own_records")
def test_in_bfloat16_small_steps_are_delivered_and_stale_ones_refused(
    bf16_engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path
) -> None:
    """Steps of 0.02 to 0.04, which aborted, and of which a stale one within 0.02 passed."""
    start = recorded(adapters(15), None, chat, BF16)
    policies = [start]
    for place in range(6):
        step = moved(policies[-1], tmp_path / f"step{place}", 0.002, 20 + place)
        policies.append(recorded(step, policies[-1], chat, BF16))
    bf16_engine.load_adapter(start)
    told = []
    for policy in policies[1:]:
        bf16_engine.load_adapter(policy)
        (proof,) = bf16_engine._pool.take_deliveries()[-1:]
        (before,) = [one for one in proof.comparisons if one.other == "the policy before it"]
        assert 0.015 < before.apart < 0.06 and 0.005 < proof.distance < 0.06
        told.append(before.verdict)
    assert told.count("delivered") >= 4 and set(told) <= {"delivered", "cannot tell"}
    stale = recorded(moved(start, tmp_path / "stale", 0.0, 0), start, chat, BF16, of=policies[4])
    with pytest.raises(WrongPolicy, match="not delivered"):
        bf16_engine.load_adapter(stale)


@pytest.mark.usefixtures("own_records")
def test_in_bfloat16_what_cannot_be_told_is_said(
    bf16_engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = adapters(16)
    step = recorded(moved(start, tmp_path / "step", 1e-6, 4), start, chat, BF16)
    bf16_engine.load_adapter(step)
    (figures,) = bf16_engine.take_deliveries()[-1:]
    verdicts = {one["other"]: one["verdict"] for one in figures["comparisons"]}
    assert verdicts["the base model"] == "delivered" and verdicts["the policy before it"] == "cannot tell"
    assert "cannot distinguish" in caplog.text and "from the policy before it" in caplog.text
