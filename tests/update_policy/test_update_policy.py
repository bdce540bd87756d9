import gc
import json
import logging
import shutil
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tasks.core.config.advantages import AdvantageConfig
from tasks.core.config.collection import CollectionConfig
from tasks.core.config.engine import EngineSection
from tasks.core.config.machines import MachinesConfig, RayConfig
from tasks.core.config.params import Params
from tasks.core.config.policy import LoraSettings, PolicyConfig
from tasks.core.config.stage_inputs import UpdateInputs
from tasks.core.config.update import UpdateConfig
from tasks.core.interfaces.stage import ProcessCache, StageContext
from tasks.core.learner.learner import UpdateDiverged, make_learner, update
from tasks.core.learner.packing import Rollout
from tasks.core.learner.proofs import ENGINE_NOISE, EngineNoise
from tasks.core.policies.loading import load_base_model, save_policy, trainable_policy
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tasks.core.records.schemas import TRAINING_BATCH
from tasks.core.records.tables import write_rows
from tasks.core.records.training import AdvantageSummary, Metrics, Preflight
from tasks.update_policy import update_policy

MakeRollouts = Callable[..., list[Rollout]]


def make_params(
    trained: str = "lora",
    staleness: int = 0,
    advantages: Mapping[str, Any] = MappingProxyType({}),
    cluster: str | None = None,
    **update: Any,
) -> Params:
    return Params(
        iterations=2,
        machines=MachinesConfig(ray=RayConfig(address=cluster)),
        collection=CollectionConfig(staleness=staleness),
        policy=PolicyConfig(trained=trained, lora=LoraSettings(rank=4, alpha=8), device="cpu"),
        advantages=AdvantageConfig.model_validate(dict(advantages)),
        update=UpdateConfig.model_validate({"minibatch": 4, **update}),
    )


def prepare(root: Path, base: Path, params: Params, batches: dict[str, list[Rollout]]) -> Layout:
    layout = Layout(root)
    shutil.copytree(base, layout.base_policy)
    policy = trainable_policy(load_base_model(base, params.policy), params.policy, None, seed=0)
    save_policy(policy, layout.policy("i000"))
    write_document(layout.preflight, Preflight(positions=1, rollouts=1, ranks=1, passes="packed"))
    for key, rollouts in batches.items():
        prepare_batch(layout, key, rollouts)
    return layout


def prepare_batch(layout: Layout, key: str, rollouts: list[Rollout]) -> None:
    rows = [row(number, rollout) for number, rollout in enumerate(rollouts)]
    write_rows(layout.training_batch(key), rows, TRAINING_BATCH)
    summary = AdvantageSummary(
        mean_return=0.5,
        group_return_std=0.2,
        rollouts=9,
        finished_rollouts=9,
        kept_rollouts=len(rollouts),
        end_reasons={"completed": 9},
    )
    write_document(layout.advantage_summary(key), summary)


def row(number: int, rollout: Rollout) -> dict[str, Any]:
    count = len(rollout.token_ids)
    turns, logprobs = np.full(count, -1), np.zeros(count)
    turns[rollout.policy_positions], logprobs[rollout.policy_positions] = rollout.turns, rollout.engine_logprobs
    return {
        "task_id": "t",
        "rollout_index": number,
        "token_ids": rollout.token_ids.tolist(),
        "policy_mask": (turns >= 0).tolist(),
        "turn_index": turns.tolist(),
        "engine_logprobs": logprobs.tolist(),
        "sequence_begins": [0],
        "return": 0.5,
        "advantage": rollout.advantage,
    }


def run(layout: Layout, params: Params, key: str, cache: ProcessCache | None = None) -> Metrics:
    update_policy(StageContext(layout, UpdateInputs.of(params), key, cache or ProcessCache()))
    return read_document(layout.metrics(key), Metrics)


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_fresh_processes_and_a_warm_one_write_the_same_bytes(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, trained: str
) -> None:
    params = make_params(trained, loss={"kl_coefficient": 0.01})
    batches = {"i001": make_rollouts(6, 1), "i002": make_rollouts(6, 2)}
    cache, found = ProcessCache(), []
    for name, held in (("fresh", None), ("warm", cache), ("warm again", cache)):
        layout = prepare(tmp_path / name, base, params, batches)
        for key in batches:
            run(layout, params, key, held)
        found.append([digest(layout.policy(key)) for key in batches])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_a_policy_that_is_kept_for_later_stages_holds_no_gradients(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, trained: str
) -> None:
    class WatchedCache(ProcessCache):
        def get(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
            kept[name] = super().get(name, key, make)
            return kept[name]

    kept: dict[str, nn.Module] = {}
    params, batches = make_params(trained), {"i001": make_rollouts(6)}
    run(prepare(tmp_path, base, params, batches), params, "i001", WatchedCache())
    weights = [weight for weight in kept["learner_policy"].parameters() if weight.requires_grad]
    assert weights and all(weight.grad is None for weight in weights)


def test_a_dropped_policy_is_freed_before_something_else_needs_its_device(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    """Its replaced forward methods refer to its layers, which stay until a garbage collection."""
    params, cache = make_params(activation_checkpointing=True, fold_adapter=True), ProcessCache()
    run(prepare(tmp_path, base, params, {"i001": make_rollouts(6)}), params, "i001", cache)
    _, policy = cache._objects["learner_policy"]
    weights = [weakref.ref(weight) for weight in policy.parameters()]
    gc.disable()
    try:
        del policy
        cache.drop("learner_policy")
        assert weights and all(weight() is None for weight in weights)
    finally:
        gc.enable()


def test_metrics_hold_the_documented_figures(base: Path, make_rollouts: MakeRollouts, tmp_path: Path) -> None:
    params = make_params()
    rollouts = make_rollouts(6)
    metrics = run(prepare(tmp_path, base, params, {"i001": rollouts}), params, "i001")
    assert (metrics.mean_return, metrics.group_return_std, metrics.kept_rollouts) == (0.5, 0.2, 6)
    assert metrics.entropy is not None and 0 < metrics.entropy < np.log(32)
    assert metrics.kl is not None and metrics.kl >= 0
    assert metrics.grad_norm
    assert metrics.clip_fraction is not None and metrics.engine_mismatch is not None
    assert metrics.engine_mismatch.max >= metrics.engine_mismatch.mean > 0
    assert (metrics.optimizer_steps, metrics.planned_optimizer_steps, metrics.total_optimizer_steps) == (4, 4, 4)
    assert metrics.stopped_early is False
    information = metrics.prompt_information
    assert information is not None and (information.prompts, information.responses) == (6, 6)
    assert information.nats <= np.log(6)


def test_a_large_mismatch_gives_a_warning(
    base: Path,
    make_rollouts: MakeRollouts,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = make_params()
    with caplog.at_level(logging.WARNING):
        with monkeypatch.context() as patched:
            patched.setitem(ENGINE_NOISE, torch.float32, EngineNoise(100.0, 100.0))
            run(prepare(tmp_path / "a", base, params, {"i001": make_rollouts(4)}), params, "i001")
        assert "log-probs differ" not in caplog.text
        run(prepare(tmp_path / "b", base, params, {"i001": make_rollouts(4)}), params, "i001")
    assert "update_policy@i001: the engine's log-probs differ from the learner's by" in caplog.text


@pytest.mark.parametrize("sampled", [{"demonstrations": True}, {"temperatures": (0.5, 1.0)}, {}])
def test_rollouts_that_the_policy_did_not_sample_at_its_temperature_show_no_engine_s_mismatch(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, caplog: pytest.LogCaptureFixture, sampled: dict[str, Any]
) -> None:
    params = make_params(objective="supervised")
    changes = (
        {"collection": params.collection.model_copy(update=sampled)}
        if sampled
        else {"engine": EngineSection.of("scripted")}
    )
    params = params.model_copy(update=changes)
    metrics = run(prepare(tmp_path, base, params, {"i001": make_rollouts(4)}), params, "i001")
    assert metrics.engine_mismatch is None and "log-probs differ" not in caplog.text


@pytest.mark.parametrize("objective", ["clipped", "supervised"])
def test_only_the_clipped_objective_weighs_stale_rollouts(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, objective: str
) -> None:
    params = make_params(staleness=1, objective=objective)
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4, 1), "i002": make_rollouts(4, 2)})
    stale = [run(layout, params, key) for key in ("i001", "i002")][1]
    assert stale.staleness == 1
    assert [stale.behaviour_kl is not None, stale.behaviour_weight is not None] == [objective == "clipped"] * 2


@pytest.mark.parametrize(
    ("dtype", "gap", "warned"), [("float32", 0.005, True), ("bfloat16", 0.05, False), ("bfloat16", 0.2, True)]
)
def test_a_mismatch_that_rounding_explains_gives_no_warning(
    base: Path,
    make_rollouts: MakeRollouts,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    dtype: str,
    gap: float,
    warned: bool,
) -> None:
    params = make_params()
    params = params.model_copy(update={"policy": params.policy.model_copy(update={"dtype": dtype})})
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4)})
    same = sampled_by(layout.policy("i000"), base, params, make_rollouts(4))
    prepare_batch(layout, "i001", [replace(one, engine_logprobs=one.engine_logprobs - gap) for one in same])
    metrics = run(layout, params, "i001")
    assert ("log-probs differ" in caplog.text) == warned
    assert metrics.engine_mismatch is not None and metrics.engine_mismatch.mean == pytest.approx(gap, rel=0.5)
    assert metrics.engine_mismatch.share_over_noise == 0 < metrics.engine_mismatch.noise


def test_stale_rollouts_are_weighted_by_the_policy_that_sampled_them(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    """The batch has the log-probs of an engine with i000, the behaviour policy of stale rollouts."""
    batch, found = make_rollouts(6, 2), {}
    for staleness in (0, 1):
        params = make_params(staleness=staleness, learning_rate=1e-2)
        layout = prepare(tmp_path / str(staleness), base, params, {"i001": make_rollouts(6, 1)})
        sampled = sampled_by(layout.policy("i000"), base, params, batch)
        prepare_batch(layout, "i002", sampled)
        first = run(layout, params, "i001")
        found[staleness] = run(layout, params, "i002")
        assert first.staleness == 0  # nothing is older than i000
    fresh, stale = found[0], found[1]
    assert (fresh.staleness, stale.staleness) == (0, 1)
    assert stale.entropy == fresh.entropy and stale.loss != fresh.loss
    assert stale.engine_mismatch == fresh.engine_mismatch
    assert stale.behaviour_kl is not None and stale.behaviour_weight is not None
    assert stale.behaviour_kl > 0 and 0 < stale.behaviour_weight <= 2 and fresh.behaviour_kl is None


def sampled_by(policy: Path, base: Path, params: Params, rollouts: list[Rollout]) -> list[Rollout]:
    """Return the rollouts with the log-probs that an engine with the checkpoint `policy` would have reported."""
    learner = make_learner(
        trainable_policy(load_base_model(base, params.policy), params.policy, policy, seed=0), params.update
    )
    logprobs = update(learner, rollouts, params.update, temperature=1.0, seed=0).old_logprobs
    return [
        replace(rollout, engine_logprobs=rollout_logprobs.numpy())
        for rollout, rollout_logprobs in zip(rollouts, logprobs, strict=True)
    ]


def test_an_empty_batch_leaves_the_policy_and_the_optimizer_byte_for_byte(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    params = make_params()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4), "i002": []})
    run(layout, params, "i001")
    metrics = run(layout, params, "i002")
    assert digest(layout.policy("i002")) == digest(layout.policy("i001"))
    assert metrics.note is not None and "nothing to train on" in metrics.note
    assert metrics.entropy is metrics.kl is metrics.grad_norm is metrics.engine_mismatch is None


def test_a_diverging_update_writes_nothing_and_keeps_existing_files(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    params = make_params()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4)})
    weights = layout.policy("i000") / "adapter_model.safetensors"
    save_file({name: tensor * float("nan") for name, tensor in load_file(weights).items()}, weights)
    with pytest.raises(
        UpdateDiverged, match=r"update_policy@i001: minibatch 1 of 2: loss nan, .*from rollout 0 of t, "
    ):
        run(layout, params, "i001")
    assert not layout.metrics("i001").exists()
    assert sorted(file.name for file in layout.iteration("i001").iterdir()) == [
        "advantages.json",
        "training_batch.parquet",
    ]


def test_an_adapter_of_another_rank_is_refused(base: Path, make_rollouts: MakeRollouts, tmp_path: Path) -> None:
    params = make_params()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4)})
    policy = params.policy.model_copy(update={"lora": LoraSettings(rank=2, alpha=8)})
    with pytest.raises(
        ValueError, match=r"i000/policy/adapter_model\.safetensors: does not fit the base model: tensor"
    ):
        run(layout, params.model_copy(update={"policy": policy}), "i001")


def test_the_policy_folder_is_an_adapter_with_the_learners_state_beside_it(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    params = make_params()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4)})
    run(layout, params, "i001")
    assert sorted(file.name for file in layout.policy("i001").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "delivery_probe.json",
        "learner.json",
        "optimizer.safetensors",
    ]
    assert json.loads((layout.policy("i001") / "learner.json").read_text()) == {"optimizer_steps": 2}
    trained: nn.Module = trainable_policy(
        load_base_model(base, params.policy), params.policy, layout.policy("i001"), seed=0
    )
    assert any(weight.abs().sum() > 0 for name, weight in trained.named_parameters() if "lora_B" in name)
