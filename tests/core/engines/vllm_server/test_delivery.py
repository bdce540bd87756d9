"""Deliveries to real servers: proven by the records beside the policies, in float32 and in bfloat16."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.core.config.engine import VllmConfig
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm_server import probe_records
from tasks.core.engines.vllm_server.engine import VllmEngine
from tasks.core.engines.vllm_server.errors import WrongPolicy
from tasks.core.engines.vllm_server.opening import open_vllm
from tasks.core.engines.vllm_server.probe_records import LocalModel
from tasks.core.engines.vllm_server.weight_sync_check import mean_difference
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.policies.delivery_probe import lasting_sequences, probe_sequence, write_probe
from tasks.core.records.delivery_probe import DeliveryProbe

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
POLICY = PolicyConfig(device="cpu")
BF16 = PolicyConfig(device="cpu", dtype="bfloat16")
VOCABULARY = 871
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are computed are kept here, not in the project."""
    monkeypatch.setattr(probe_records, "STATE_FOLDER", tmp_path / "kept")


@pytest.fixture(scope="module")
def bf16_engine(chat: ChatFormat) -> Iterator[VllmEngine]:
    engine = open_vllm(VllmConfig(sharing="alternate"), BF16, SHIPPED, chat)
    yield engine
    engine.sleep()
    engine.close()


def moved(source: Path, folder: Path, size: float, seed: int) -> Path:
    """The adapter of `source` after a step: noise of this standard deviation on every B."""
    folder.mkdir()
    random = torch.Generator().manual_seed(seed)
    tensors = load_file(source / "adapter_model.safetensors")
    for name in sorted(tensors):
        if "lora_B" in name:
            tensors[name] += size * torch.randn(tensors[name].shape, generator=random)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_bytes((source / "adapter_config.json").read_bytes())
    return folder


def recorded(
    folder: Path, previous: Path | None, chat: ChatFormat, config: PolicyConfig, of: Path | None = None
) -> Path:
    """Put the record of `folder` (or of another policy, `of`, under its name) beside it."""
    lasting = lasting_sequences(chat, VOCABULARY)
    texts = [f"Send {place} coins to friend {place * 3}, then tell me the weather." * 3 for place in range(16)]
    windows = [chat.prompt_ids([{"role": "user", "content": text}])[:96] for text in texts]
    readings = LocalModel(SHIPPED, config).readings([of or folder, previous, None], [*lasting, *windows])
    columns = zip([*lasting, *windows], readings[0], readings[2], readings[1], strict=True)
    sequences = tuple(probe_sequence(*column) for column in columns)
    count = len(lasting)
    probe = DeliveryProbe(
        weights=policy_digest(folder),
        dtype=config.dtype,
        device="cpu",
        lasting=sequences[:count],
        trained_on=sequences[count:],
    )
    write_probe(folder, probe)
    return folder


def sampled_from(engine: VllmEngine, ids: list[int]) -> list[float]:
    """Log-probs of the ids by the first server, under the name that turns are sampled by."""
    server = engine._pool._servers[0]
    coroutine = server.client.sample(
        server.model, ids, temperature=1.0, max_tokens=1, stop_ids=(), seed=0, prompt_logprobs=True
    )
    return engine._loop.run(coroutine).prompt_logprobs


def test_a_record_is_all_that_a_delivery_needs(
    engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server and no delivery loads the model; old and new, base and what is held are told apart in under 1 s."""
    first = recorded(adapters(11), None, chat, POLICY)
    second = recorded(moved(first, tmp_path / "second", 1e-4, 1), first, chat, POLICY)

    def refuse(*_: object) -> None:
        raise AssertionError("the base model was loaded")

    monkeypatch.setattr("tasks.core.policies.loading.load_base_model", refuse)
    engine.load_adapter(first)
    engine._pool.take_deliveries()
    engine.load_adapter(second)
    proofs = engine._pool.take_deliveries()
    assert len(proofs) == 2, "one per server"
    for proof in proofs:
        found = {one.other: one.verdict for one in proof.comparisons}
        assert found == dict.fromkeys(["the base model", "the policy before it", str(first.resolve())], "delivered")
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
    assert f"{folder}: no record of its log-probs lies beside it" in caplog.text
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
    assert "has another policy under the name of this one" in capfd.readouterr().err
    ids = lasting_sequences(chat, VOCABULARY)[1]
    expected, before = LocalModel(SHIPPED, POLICY).logprobs([new, old], ids)
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
    with pytest.raises(WrongPolicy, match="the policy was not delivered: on the way from the policy before it"):
        engine.load_adapter(stale)
    server = engine._pool._servers[0]
    assert f"policy-{policy_digest(stale)[:16]}" not in engine._loop.run(server.client.served()).adapters


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


def test_in_bfloat16_what_cannot_be_told_is_said(
    bf16_engine: VllmEngine, chat: ChatFormat, adapters: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = adapters(16)
    step = recorded(moved(start, tmp_path / "step", 1e-6, 4), start, chat, BF16)
    bf16_engine.load_adapter(step)
    (figures,) = bf16_engine.take_deliveries()[-1:]
    verdicts = {one["other"]: one["verdict"] for one in figures["comparisons"]}
    assert verdicts["the base model"] == "delivered" and verdicts["the policy before it"] == "cannot tell"
    assert "cannot tell" in caplog.text and "from the policy before it" in caplog.text
