"""An exported model as vLLM serves it: the folder alone samples as base and adapter do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core.engines.vllm.engine import open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.exports.exported_policy import ExportedPolicy
from tasks.core.exports.logits_proof import conversation
from tasks.core.exports.model_folder import export_model
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.records.delivery_probe import mean_difference
from tasks.core.rollouts.planning import plan_rollouts
from tasks.core.rollouts.playing import play_rollouts
from tests.core.engines.vllm.conftest import POLICY, SHIPPED
from tests.core.engines.vllm.test_full_weights import SETTINGS

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

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
