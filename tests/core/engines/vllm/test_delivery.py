"""Deliveries to real servers: proven by the records beside the policies."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.client import WrongPolicy
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.delivery_probe import lasting_sequences
from tasks.core.records.delivery_probe import mean_difference
from tests.core.engines.vllm.recorded_policies import SHIPPED, VOCABULARY, moved, recorded

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800), pytest.mark.usefixtures("own_records")]

POLICY = PolicyConfig(device="cpu")
Write = Callable[..., Path]


def sampled_from(engine: VllmEngine, ids: list[int]) -> list[float]:
    """Log-probs of the ids by the first server, under the name that turns are sampled by."""
    server = engine._pool.servers[0]
    coroutine = server.client.sample(
        server.model, ids, temperature=1.0, max_tokens=1, stop_ids=(), seed=0, prompt_logprobs=True
    )
    return engine._loop.run(coroutine).prompt_logprobs


def test_a_record_is_all_that_a_delivery_needs(
    engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server and no delivery loads the model; old, new and base are told apart in under 1 s."""
    first = recorded(adapters(11), None, chat, POLICY)
    second = recorded(moved(first, tmp_path / "second", 1e-4, 1), first, chat, POLICY)

    def refuse(*_: object) -> None:
        raise AssertionError("the base model was loaded")

    monkeypatch.setattr("tasks.core.engines.vllm.probe_records.load_base_model", refuse)
    engine.load_adapter(first)
    engine._pool.take_deliveries()
    engine.load_adapter(second)
    proofs = engine._pool.take_deliveries()
    assert len(proofs) == 2, "one per server"
    for proof in proofs:
        found = {one.other: one.verdict for one in proof.comparisons}
        assert found == dict.fromkeys(["the base model", "the policy before it"], "delivered")
        assert proof.distance < 1e-4
    figures = engine.take_deliveries()
    assert figures == []


def test_a_policy_without_a_record_is_computed_once_for_all_servers_and_deliveries(
    engine: VllmEngine, adapters: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, loads, load = adapters(12), [], LocalModel.readings
    monkeypatch.setattr(LocalModel, "readings", lambda *given: loads.append(given) or load(*given))
    for policy in (folder, None, folder, None):
        engine.load_adapter(policy)
    assert len(loads) == 2, "the adapter and the base, once each, for two servers"
    assert f"{folder}: its folder has no record of its log-probs" in caplog.text
    assert not (folder / "delivery_probe.json").exists(), "a policy's folder is an artifact"


def test_the_previous_adapter_under_the_new_ones_name_is_replaced(
    urls: tuple[str, ...], chat: ChatFormat, adapters: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old = recorded(adapters(13), None, chat, POLICY)
    new = recorded(moved(old, tmp_path / "new", 1e-3, 2), old, chat, POLICY)
    found = open_vllm(VllmConfig(urls=urls), POLICY, SHIPPED, chat)
    found.load_adapter(None)
    address = found._pool._provider.start(None)[0]
    stale = {"lora_name": f"policy-{policy_digest(new)[:16]}", "lora_path": str(old)}
    headers = {"Authorization": f"Bearer {address.key}"}
    httpx2.post(f"{urls[0]}/v1/load_lora_adapter", json=stale, headers=headers).raise_for_status()
    found.load_adapter(new)
    assert "serves another policy under this policy's name" in capfd.readouterr().err
    ids = lasting_sequences(chat, VOCABULARY)[1]
    (expected,), (before,) = LocalModel(SHIPPED, POLICY).readings([new, old], [ids])
    assert mean_difference(sampled_from(found, ids), expected) < 1e-4 < mean_difference(expected, before)
    found.load_adapter(None)
    found.close()


def test_a_server_that_keeps_the_old_policy_is_refused_and_the_adapter_unloaded(
    engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path
) -> None:
    """Weights of the old policy at the place of the new one: 5e-5 apart, far within any tolerance."""
    old = adapters(14)
    new = moved(old, tmp_path / "new", 2e-5, 3)
    stale = recorded(moved(old, tmp_path / "stale", 0.0, 0), old, chat, POLICY, of=new)
    with pytest.raises(WrongPolicy, match="the policy was not delivered: on a scale from the policy before it"):
        engine.load_adapter(stale)
    server = engine._pool.servers[0]
    assert f"policy-{policy_digest(stale)[:16]}" not in engine._loop.run(server.client.served()).adapters
