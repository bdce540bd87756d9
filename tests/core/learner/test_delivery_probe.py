"""The delivery probe of a policy: the learner's log-probs of the policy, of the previous policy, and of the base."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.learner.packing import Rollout
from tasks.core.learner.proofs import WINDOW_TOKENS, WINDOWS, batch_windows
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.delivery_probe import read_probe
from tasks.core.records.delivery_probe import DeliveryProbe, ProbeSequence
from tasks.core.records.files import ArtifactError
from tasks.core.records.layout import Layout
from tests.update_policy.test_update_policy import make_params, prepare, run

MakeRollouts = Callable[..., list[Rollout]]


def updated(root: Path, base: Path, rollouts: list[Rollout], **policy: str) -> tuple[Layout, PolicyConfig]:
    params = make_params(policy.get("trained", "lora"), learning_rate=1e-2)
    config = params.policy.model_copy(update=policy)
    params = params.model_copy(update={"policy": config})
    layout = prepare(root, base, params, {"i001": rollouts, "i002": rollouts})
    run(layout, params, "i001")
    run(layout, params, "i002")
    return layout, config


def record(layout: Layout, key: str) -> DeliveryProbe:
    probe = read_probe(layout.policy(key))
    assert probe is not None
    return probe


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_the_record_holds_what_a_model_loaded_from_the_folders_says(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path, trained: str
) -> None:
    layout, config = updated(tmp_path, base, make_rollouts(6), trained=trained)
    probe, local = record(layout, "i002"), LocalModel(layout.base_policy, config)
    assert probe.weights == policy_digest(layout.policy("i002"))
    assert (probe.dtype, probe.device) == ("float32", "cpu")
    assert len(probe.trained_on) == 6
    policies = [layout.policy("i002"), layout.policy("i001"), None]
    readings = local.readings(policies, [one.token_ids for one in probe.sequences])
    for place, one in enumerate(probe.sequences):
        assert one.logprobs == pytest.approx(readings[0][place], abs=1e-5)
        assert one.previous == pytest.approx(readings[1][place], abs=1e-5)
        assert one.base is None if trained == "full" else one.base == pytest.approx(readings[2][place], abs=1e-5)
    assert np.abs(np.subtract(probe.trained_on[0].logprobs, probe.trained_on[0].previous or ())).max() > 1e-3


def test_lasting_tokens_are_handed_on_so_that_any_two_policies_can_be_compared(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    layout, _ = updated(tmp_path, base, make_rollouts(4))
    first, second = (record(layout, key) for key in ("i001", "i002"))
    assert [one.token_ids for one in first.lasting] == [one.token_ids for one in second.lasting]
    assert [one.logprobs for one in first.lasting] == [one.previous for one in second.lasting]


def test_an_unchanged_policy_keeps_its_record(base: Path, make_rollouts: MakeRollouts, tmp_path: Path) -> None:
    params = make_params()
    layout = prepare(tmp_path, base, params, {"i001": make_rollouts(4), "i002": []})
    run(layout, params, "i001")
    run(layout, params, "i002")
    assert record(layout, "i002") == record(layout, "i001")


def test_windows_lie_where_the_update_moves_the_policy_most() -> None:
    ids = np.arange(5000)
    positions = np.concatenate([np.arange(40, 50), np.arange(3000, 3200), np.arange(4000, 4100)])
    turns = np.repeat([0, 1, 2], [10, 200, 100])
    plain = Rollout(ids, positions, turns, np.zeros(310, dtype=np.float32), advantage=0.1)
    rollouts = [replace(plain, advantage=place / 100 - 0.5) for place in range(80)]
    windows = batch_windows(rollouts)
    assert len(windows) == WINDOWS
    assert windows[0] == list(range(2968, 2968 + WINDOW_TOKENS))
    early = replace(plain, policy_positions=positions[:10], turns=turns[:10], advantage=-9.0)
    assert batch_windows([*rollouts, early])[0] == list(range(8, 8 + WINDOW_TOKENS))


def test_a_record_of_other_weights_is_refused_and_a_broken_one_named(
    base: Path, make_rollouts: MakeRollouts, tmp_path: Path
) -> None:
    layout, _ = updated(tmp_path, base, make_rollouts(4))
    file = layout.policy("i002") / "delivery_probe.json"
    file.write_bytes((layout.policy("i001") / "delivery_probe.json").read_bytes())
    with pytest.raises(ArtifactError, match=r"i002/policy/delivery_probe\.json: weights: written for other weights"):
        read_probe(layout.policy("i002"))
    content = json.loads(file.read_text())
    content["lasting"][0]["logprobs"].pop()
    file.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"probe\.json: lasting\.0: .*logprobs: 30 values for 32 token_ids"):
        read_probe(layout.policy("i002"))
    file.unlink()
    assert read_probe(layout.policy("i002")) is None


def test_a_logprob_is_not_positive() -> None:
    with pytest.raises(ValueError, match="less than or equal to"):
        ProbeSequence(token_ids=(1, 2), logprobs=(0.1,))


def test_bfloat16_is_read_in_bfloat16(base: Path, make_rollouts: MakeRollouts, tmp_path: Path) -> None:
    layout, config = updated(tmp_path, base, make_rollouts(4), dtype="bfloat16")
    probe = record(layout, "i001")
    assert probe.dtype == "bfloat16"
    exact = LocalModel(layout.base_policy, config.model_copy(update={"dtype": "float32"}))
    rounded = LocalModel(layout.base_policy, config)
    ids, found = probe.lasting[0].token_ids, torch.tensor(probe.lasting[0].logprobs)
    gaps = [
        (torch.tensor(model.readings([layout.policy("i001")], [ids])[0][0]) - found).abs().mean()
        for model in (rounded, exact)
    ]
    assert gaps[0] < gaps[1]
