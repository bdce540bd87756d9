"""One device for servers and update: the engine decides by the figures that the plan prints."""

import json
from pathlib import Path

import pytest

from flows.params_file import params_of
from tasks.core.capacity.hardware import GIB, HARDWARE
from tasks.core.capacity.known_models import KNOWN_MODELS
from tasks.core.capacity.memory import Sharing, choose_sharing, memory_of
from tasks.core.capacity.plan import make_plan
from tasks.core.config.stage_inputs import MemoryInputs, ScoringInputs
from tasks.core.engines.vllm.engine import learner_bytes
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.policies.checkpoint_files import read_model_config
from tasks.core.records.layout import Layout


def test_memory_decides_whether_rollouts_and_update_take_turns() -> None:
    def choose(setting: str, memory: int, learner: float | None = 28 * GIB) -> Sharing:
        config = VllmConfig.model_validate({"sharing": setting, "kv_cache_gib": 8})
        return choose_sharing(config, weights=14 * GIB, learner=learner, memory=memory * GIB, servers=1)

    roomy, tight = choose("auto", 80), choose("auto", 48)
    assert not roomy.releases_device and roomy.memory_share == pytest.approx(0.31, abs=0.01)
    assert tight.releases_device and tight.memory_share == 0.9
    assert "take turns" in tight.reason and "48.0 GiB" in tight.reason
    assert choose("alternate", 80).releases_device
    assert not choose("side_by_side", 48).releases_device
    untrained = choose("auto", 24, learner=None)
    assert (untrained.releases_device, untrained.memory_share) == (False, 0.9)


@pytest.mark.parametrize(
    ("profile", "settings", "turns"),
    [
        ("gpu_80gb", [], False),
        ("gpu_80gb", ["update.tokens_per_pack=131072"], True),
        ("gpu_80gb", ["update.activation_checkpointing=false"], True),
        ("gpu_80gb", ["engine.vllm.kv_cache_gib=20"], False),
        ("gpu_small", [], False),
        ("paper", [], True),
        ("paper", ["update.distributed.ranks=1"], True),
        ("paper", ["iterations=0"], False),
    ],
)
def test_engine_and_plan_make_the_same_choice(profile: str, settings: list[str], turns: bool, tmp_path: Path) -> None:
    params = params_of(profile, ["policy.device=cuda", *settings])
    layout = Layout(tmp_path)
    layout.base_policy.mkdir(parents=True)
    config = KNOWN_MODELS[params.policy.source].config
    (layout.base_policy / "config.json").write_text(json.dumps(config))
    plan = make_plan(params, config, HARDWARE["h100"], params.update.distributed.size)
    memory = MemoryInputs.of(params) if ScoringInputs.of(params).trains else None
    learner = learner_bytes(memory, layout.base_policy, "cuda")
    assert learner == (plan.learner.total if params.iterations else None)
    vllm = params.engine.vllm
    server = memory_of(
        MemoryInputs.of(params), read_model_config(layout.base_policy), "cuda", tensor_parallel=vllm.gpus_per_server
    ).engine
    device = int(HARDWARE["h100"].memory)
    chosen = choose_sharing(vllm, weights=server.loaded, learner=learner, memory=device, servers=1)
    assert chosen.releases_device == plan.releases_device == turns
