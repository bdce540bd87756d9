"""The learner's memory compared with torch's own record of allocations, on a CPU."""

from threading import Barrier

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2ForCausalLM

from flows.params_file import params_of
from tasks.core.capacity.flops import ModelShape, parameters
from tasks.core.capacity.known_models import KNOWN_MODELS
from tasks.core.capacity.memory import engine_memory, learner_memory, memory_of, packs_at_once
from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.config.update import UpdateConfig
from tasks.core.learner.learner import make_learner, update
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.policies.loading import trainable_policy
from tasks.core.policies.pass_threads import map_passes
from tasks.core.processes.resources import CORES_VARIABLE
from tests.tiny_models import tiny_qwen2_config

TOLERANCE = 0.1
POSITIONS, POLICY_TOKENS, CHUNK = 512, 256, 64
SMALL = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3, "vocab_size": 3000}
LARGE = {"hidden_size": 192, "intermediate_size": 384, "num_hidden_layers": 5, "vocab_size": 8000}


def most_allocated(config: Qwen2Config, policy: PolicyConfig, settings: UpdateConfig, packs: int = 1) -> int:
    """Return the peak of bytes that torch allocates in two optimizer steps of `packs` packs, beyond earlier ones."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).to(getattr(torch, policy.dtype)).eval().requires_grad_(False)
    learner = make_learner(trainable_policy(model, policy, None, 0), settings)
    positions, tokens = settings.tokens_per_pack, settings.tokens_per_pack // 2
    ids = np.random.default_rng(0).integers(0, config.vocab_size, positions + 1)
    sampled = np.arange(positions + 1 - tokens, positions + 1)
    nothing = np.zeros(tokens)
    rollout = Rollout(ids, sampled, nothing.astype(np.int64), nothing.astype(np.float32), 1.0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        update(learner, 2 * packs * [rollout], settings, temperature=1.0, seed=0)
    held = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


@pytest.mark.parametrize(
    ("sizes", "checkpointing", "dtype"),
    [(SMALL, False, "float32"), (SMALL, True, "bfloat16"), (LARGE, True, "float32"), (LARGE, False, "bfloat16")],
    ids=["small", "small, checkpointing, bfloat16", "large, checkpointing", "large, bfloat16"],
)
def test_the_peak_of_an_update_is_as_predicted(sizes: dict[str, int], checkpointing: bool, dtype: str) -> None:
    config = tiny_qwen2_config(**sizes, num_attention_heads=4)
    policy = PolicyConfig.model_validate({"dtype": dtype, "lora": LoraSettings(rank=8), "device": "cpu"})
    settings = UpdateConfig(
        epochs=1,
        minibatch=1,
        tokens_per_pack=POSITIONS,
        logprob_chunk=CHUNK,
        activation_checkpointing=checkpointing,
    )
    shape = ModelShape.of_config(config.to_dict())
    predicted = learner_memory(shape, policy, settings, POSITIONS, POLICY_TOKENS, ranks=1)
    held_before = predicted.weights + predicted.adapter
    measured = most_allocated(config, policy, settings)
    assert predicted.total - held_before == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_weights_need_one_gradient_however_many_packs_follow_each_other(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """With bfloat16 the masters exist before the update begins, as the weights do."""
    monkeypatch.setenv(CORES_VARIABLE, "1")
    config = tiny_qwen2_config(**SMALL, num_attention_heads=4)
    policy = PolicyConfig.model_validate({"dtype": dtype, "trained": "full", "device": "cpu"})
    settings = UpdateConfig(epochs=1, minibatch=3, tokens_per_pack=48, logprob_chunk=16)
    shape = ModelShape.of_config(config.to_dict())
    predicted = learner_memory(shape, policy, settings, 48, 24, ranks=1)
    held_before = predicted.weights + (4 * parameters(shape) if dtype == "bfloat16" else 0)
    measured = most_allocated(config, policy, settings, packs=3)
    assert predicted.total - held_before == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.parametrize("entropy", [0.0, 0.01])
def test_an_entropy_bonus_needs_the_logits_twice(entropy: float) -> None:
    config = tiny_qwen2_config(**SMALL, num_attention_heads=4)
    policy = PolicyConfig.model_validate({"lora": LoraSettings(rank=8), "device": "cpu"})
    knobs = {"minibatch": 1, "epochs": 1, "tokens_per_pack": POSITIONS, "logprob_chunk": 2 * CHUNK}
    settings = UpdateConfig.model_validate(knobs | {"loss": {"entropy_coefficient": entropy}})
    predicted = learner_memory(ModelShape.of_config(config.to_dict()), policy, settings, POSITIONS, POLICY_TOKENS, 1)
    measured = most_allocated(config, policy, settings)
    assert predicted.total - predicted.weights - predicted.adapter == pytest.approx(measured, rel=TOLERANCE)


def test_a_rank_on_a_cpu_needs_room_for_the_packs_that_it_really_passes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CORES_VARIABLE, "3")
    inputs, config = MemoryInputs.of(params_of("smoke")), KNOWN_MODELS["Qwen/Qwen2.5-0.5B-Instruct"].config
    rollout = Rollout(np.arange(9), np.arange(4, 9), np.zeros(5, np.int64), np.zeros(5, np.float32), 1.0)
    packs = [pack_rollouts([rollout], [0], 9, torch.device("cpu"))[0] for _ in range(3)]
    together = Barrier(3, timeout=60)
    assert sorted(map_passes(lambda pack: together.wait(), packs, torch.device("cpu"))) == [0, 1, 2]
    assert [packs_at_once(inputs, device) for device in ("cpu", "cuda")] == [3, 1]
    side_by_side, alone = (memory_of(inputs, config, device).learner for device in ("cpu", "cuda"))
    assert side_by_side.activations + side_by_side.work == 3 * (alone.activations + alone.work)
    assert side_by_side.weights == alone.weights


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_known_models_have_as_many_parameters_as_the_hub_says(name: str) -> None:
    assert parameters(ModelShape.of_config(KNOWN_MODELS[name].config)) == KNOWN_MODELS[name].parameters


def test_sharding_and_tensor_parallelism_divide_what_they_divide() -> None:
    shape = ModelShape.of_config(KNOWN_MODELS["Qwen/Qwen2.5-32B-Instruct"].config)
    policy = PolicyConfig(dtype="bfloat16", lora=LoraSettings(rank=16, alpha=32))
    settings = UpdateConfig(activation_checkpointing=True)
    alone, sharded = (learner_memory(shape, policy, settings, 32768, 8192, ranks) for ranks in (1, 8))
    assert sharded.optimizer * 8 == alone.optimizer == 2 * 4 * 134_217_728
    assert sharded.activations == alone.activations
    assert alone.weights / 8 < sharded.weights < alone.weights / 4
    assert engine_memory(shape, policy, 1).cache_per_token == 2 * 64 * 8 * 128 * 2
    assert engine_memory(shape, policy, 4).cache_per_token == 2 * 64 * 2 * 128 * 2


def test_a_pair_of_rollouts_needs_no_more_room_than_one() -> None:
    config = KNOWN_MODELS["Qwen/Qwen2.5-7B-Instruct"].config
    alone, pair = (
        memory_of(MemoryInputs.of(params_of(name)), config, "cuda") for name in ("gpu_80gb", "gpu_80gb dmpo")
    )
    assert pair.learner.activations == alone.learner.activations


def test_only_a_float32_adapter_is_folded_and_paid_for() -> None:
    shape = ModelShape.of_config(KNOWN_MODELS["Qwen/Qwen2.5-0.5B-Instruct"].config)

    def price(**policy: str) -> float:
        kept = [
            learner_memory(shape, PolicyConfig.model_validate(policy), UpdateConfig(fold_adapter=fold), 64, 32, ranks=1)
            for fold in (False, True)
        ]
        return kept[1].total - kept[0].total

    assert price() > 0
    assert price(dtype="bfloat16") == price(trained="full") == 0


def test_ranks_that_train_all_weights_hold_whole_gradients_of_what_they_gather_only() -> None:
    shape = ModelShape.of_config(KNOWN_MODELS["Qwen/Qwen2.5-7B-Instruct"].config)
    policy = PolicyConfig(dtype="bfloat16", trained="full")
    alone, sharded = (learner_memory(shape, policy, UpdateConfig(), 4096, 2048, ranks) for ranks in (1, 8))
    gathered = sharded.weights - alone.weights / 8
    assert sharded.gradients == alone.gradients / 8 + gathered
    assert sharded.optimizer == alone.optimizer / 8 == (4 + 4 + 4) * parameters(shape) / 8
