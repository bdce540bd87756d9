"""The vLLM engine over two real servers on the embedded policy."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.core.config.collection import AgentLimits, EarlyStop
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.transformers.conversations import truncated
from tasks.core.engines.vllm.client import EngineUnavailable, ServerLost, WrongPolicy
from tasks.core.engines.vllm.engine import VllmEngine, open_vllm
from tasks.core.engines.vllm.probe_records import LocalModel
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.engine import ContextOverflow, Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import load_base_model
from tasks.core.records.delivery_probe import mean_difference
from tasks.core.records.files import read_json, write_json
from tasks.core.rollouts.planning import PlaySettings, plan_rollouts
from tasks.core.rollouts.playing import play_rollouts

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

SHIPPED = Path(__file__).parents[4] / "data" / "base_policies" / "pocket"
POLICY = PolicyConfig(device="cpu")
STOP = 256
IN_FLIGHT = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")


def request(name: str, prompt: Sequence[int], temperature: float = 1.0, tokens: int = 24) -> GenerationRequest:
    return GenerationRequest(name, prompt, SamplingSettings(temperature, tokens, (STOP,)), seed=len(prompt))


def answers(engine: VllmEngine, requests: Sequence[GenerationRequest]) -> dict[str, Generation]:
    for one in requests:
        engine.submit(one)
    done: dict[str, Generation] = {}
    while generations := engine.collect():
        done.update({generation.sequence_id: generation for generation in generations})
    return done


def prompts(chat: ChatFormat, count: int) -> list[list[int]]:
    return [
        chat.prompt_ids([{"role": "user", "content": f"Send {place} coins to my friend."}]) for place in range(count)
    ]


def worst_mean(policy: Path | None, requests: Sequence[GenerationRequest], done: dict[str, Generation]) -> float:
    """Largest mean |engine - full forward pass| over the turns, at temperature 1."""
    local, worst = LocalModel(SHIPPED, POLICY), 0.0
    for one in requests:
        turn = done[one.sequence_id]
        ((full,),) = local.readings([policy], [[*one.prompt_ids, *turn.token_ids]])
        worst = max(worst, mean_difference(full[len(one.prompt_ids) - 1 :], turn.logprobs))
    return worst


def test_logprobs_are_those_of_a_full_forward_pass(
    engine: VllmEngine, chat: ChatFormat, adapters: Callable[..., Path]
) -> None:
    asked = [request(f"c{place}", prompt) for place, prompt in enumerate(prompts(chat, 12))]
    for policy in (None, adapters(1), adapters(2), None):
        engine.load_adapter(policy)
        done = answers(engine, asked)
        assert worst_mean(policy, asked, done) < 1e-4
        if policy is not None:
            assert worst_mean(None, asked, done) > 1e-2
    assert all(turn.stop_reason == ("stop" if turn.token_ids[-1] == STOP else "length") for turn in done.values())


def test_a_turn_stops_at_each_of_its_stop_ids(engine: VllmEngine, chat: ChatFormat) -> None:
    engine.load_adapter(None)
    (prompt,) = prompts(chat, 1)
    whole = answers(engine, [request("whole", prompt, temperature=0.0)])["whole"].token_ids
    assert len(whole) > 3 and STOP not in whole[:-1]
    for place in (1, 3):
        settings = SamplingSettings(0.0, 24, (STOP, whole[place], 300))
        cut = answers(engine, [GenerationRequest(f"cut{place}", prompt, settings, seed=0)])[f"cut{place}"]
        assert cut.token_ids == whole[: whole.index(whole[place]) + 1] and cut.stop_reason == "stop"


def test_logprobs_follow_the_temperature_and_are_at_1_when_greedy(engine: VllmEngine, chat: ChatFormat) -> None:
    engine.load_adapter(None)
    (prompt,) = prompts(chat, 1)
    model = load_base_model(SHIPPED, POLICY)
    for temperature in (0.5, 0.0):
        turn = answers(engine, [request("t", prompt, temperature)])["t"]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *turn.token_ids]])).logits[0, len(prompt) - 1 : -1]
        full = (logits / (temperature or 1.0)).log_softmax(-1)
        assert (
            mean_difference([row[i].item() for row, i in zip(full, turn.token_ids, strict=True)], turn.logprobs) < 1e-4
        )
        assert temperature or list(turn.token_ids) == logits.argmax(-1).tolist()


def test_only_the_likeliest_tokens_are_sampled_and_share_the_probability(engine: VllmEngine, chat: ChatFormat) -> None:
    engine.load_adapter(None)
    (prompt,) = prompts(chat, 1)
    model = load_base_model(SHIPPED, POLICY)
    for top_k, top_p in ((1, 1.0), (3, 0.9)):
        sampling = SamplingSettings(1.5, 12, (STOP,), top_k=top_k, top_p=top_p)
        turn = answers(engine, [GenerationRequest("t", prompt, sampling, seed=5)])["t"]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *turn.token_ids]])).logits[0, len(prompt) - 1 : -1]
        rows = len(turn.token_ids)
        shares = truncated((logits / 1.5).softmax(-1), torch.full((rows,), top_k), torch.full((rows,), top_p))
        expected = shares.gather(1, torch.tensor(turn.token_ids)[:, None])[:, 0].log().tolist()
        assert mean_difference(expected, turn.logprobs) < 1e-4


def test_turns_are_spread_over_the_servers_and_a_conversation_stays(engine: VllmEngine, chat: ChatFormat) -> None:
    engine.load_adapter(None)
    asked = [request(f"s{place}", prompt) for place, prompt in enumerate(prompts(chat, 6))]
    for one in asked:
        engine.submit(one)
    homes = {one.sequence_id: engine._home[one.sequence_id].index for one in asked}
    assert set(homes.values()) == {0, 1}
    first: dict[str, Generation] = {}
    while generations := engine.collect():
        first.update({turn.sequence_id: turn for turn in generations})
    second = [request(one.sequence_id, [*one.prompt_ids, *first[one.sequence_id].token_ids, 1, 2]) for one in asked]
    assert worst_mean(None, second, answers(engine, second)) < 1e-4
    assert {one.sequence_id: engine._home[one.sequence_id].index for one in asked} == homes


def test_a_full_context_is_an_overflow_and_a_nearly_full_one_a_short_turn(engine: VllmEngine) -> None:
    engine.load_adapter(None)
    with pytest.raises(ContextOverflow):
        engine.submit(request("full", [5] * engine.context_length))
    turn = answers(engine, [request("nearly", [5] * (engine.context_length - 2))])["nearly"]
    assert 1 <= len(turn.token_ids) <= 2


def test_requests_that_would_kill_or_mislead_a_server_are_refused(engine: VllmEngine) -> None:
    engine.load_adapter(None)
    with pytest.raises(ValueError, match=r"0 .. 870"):
        engine.submit(request("outside", [871]))
    with pytest.raises(ValueError, match="temperature"):
        engine.submit(request("cold", [1], temperature=0.001))


def test_an_adapter_over_the_servers_rank_is_one_error(engine: VllmEngine, adapters: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"rank 16 is greater than max_lora_rank 8"):
        engine.load_adapter(adapters(3, rank=16))
    with pytest.raises(EngineUnavailable, match="no policy is loaded"):
        engine.submit(request("none", [1]))


def test_an_adapter_of_another_model_is_named_by_its_tensor(
    engine: VllmEngine, adapters: Callable[..., Path], tmp_path: Path
) -> None:
    source = adapters(4)
    tensors = load_file(source / "adapter_model.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("lora_B.weight"))
    save_file({**tensors, name: tensors[name][:-1]}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_bytes((source / "adapter_config.json").read_bytes())
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        engine.load_adapter(tmp_path)


def test_prompts_that_do_not_fit_one_step_together_are_sampled_with_seeds(engine: VllmEngine) -> None:
    """vLLM's CPU build dies of a seed where it reads a prompt in parts."""
    engine.load_adapter(None)
    asked = [request(f"l{place}", [(place * 7 + i) % 800 for i in range(500 + place)], tokens=2) for place in range(24)]
    assert len(answers(engine, asked)) == 24
    assert not any(server.restarts for server in engine._pool.servers)


def test_an_early_stop_aborts_the_turns_in_flight(urls: tuple[str, ...], chat: ChatFormat, world: World) -> None:
    found = open_vllm(VllmConfig(urls=urls), POLICY, SHIPPED, chat)
    planned = plan_rollouts(world.tasks("train")[:6], 4, seed=1)
    limits = AgentLimits(max_turns=6, max_tokens_per_turn=200, max_observation_tokens=200)
    settings = PlaySettings(1.0, limits, len(planned), 1, EarlyStop(min_per_task=2, share=0.5))
    rows = play_rollouts(world, found, chat, planned, settings, policy=None)
    assert len(rows) == len(planned)
    assert any(row["end_reason"] == "cut_by_early_stop" for row in rows)
    assert not found._turns
    deadline = time.monotonic() + 60
    while in_flight(urls[0]):
        assert time.monotonic() < deadline
    found.close()


def in_flight(url: str) -> float:
    """Requests that a server has, by its own count."""
    lines = httpx2.get(f"{url}/metrics").raise_for_status().text.splitlines()
    counts = [float(line.split()[-1]) for line in lines if line.startswith(IN_FLIGHT)]
    assert counts
    return sum(counts)


def test_a_server_at_a_url_is_used_and_left_running(
    engine: VllmEngine, urls: tuple[str, ...], chat: ChatFormat, adapters: Callable[..., Path]
) -> None:
    found = open_vllm(VllmConfig(urls=urls), POLICY, SHIPPED, chat)
    folder = adapters(5)
    found.load_adapter(folder)
    asked = [request("u", prompts(chat, 1)[0])]
    assert worst_mean(folder, asked, answers(found, asked)) < 1e-4
    found.close()
    engine.load_adapter(None)
    assert len(answers(engine, asked)) == 1


def test_a_server_of_another_model_at_the_url_is_one_error(
    urls: tuple[str, ...], chat: ChatFormat, tmp_path: Path
) -> None:
    for file in SHIPPED.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(SHIPPED / "model.safetensors")
    changed = {name: tensor * 1.1 if "mlp" in name else tensor for name, tensor in tensors.items()}
    save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = open_vllm(VllmConfig(urls=urls), POLICY, tmp_path, chat)
    with pytest.raises(WrongPolicy, match=r"serving .*pocket.*another model"):
        found.load_adapter(None)
    found.close()


def test_a_server_of_another_vocabulary_at_the_url_is_one_error(
    urls: tuple[str, ...], chat: ChatFormat, tmp_path: Path
) -> None:
    """The same weights but for some words that the policy hardly ever uses."""
    for file in SHIPPED.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config, tensors = read_json(SHIPPED / "config.json"), load_file(SHIPPED / "model.safetensors")
    cut = {name: tensor[:-16] if len(tensor) == config["vocab_size"] else tensor for name, tensor in tensors.items()}
    save_file(cut, tmp_path / "model.safetensors", metadata={"format": "pt"})
    write_json(tmp_path / "config.json", {**config, "vocab_size": config["vocab_size"] - 16})
    found = open_vllm(VllmConfig(urls=urls), POLICY, tmp_path, chat)
    with pytest.raises(WrongPolicy, match=r"serving .*pocket"):
        found.load_adapter(None)
    found.close()


def test_no_server_at_the_url_is_one_error(chat: ChatFormat) -> None:
    found = open_vllm(VllmConfig(urls=("http://127.0.0.1:9",)), POLICY, SHIPPED, chat)
    with pytest.raises(ServerLost, match=r"no healthy vLLM server at http://127\.0\.0\.1:9"):
        found.load_adapter(None)
    found.close()


def test_runs_on_the_same_found_server_leave_each_other_their_adapters(
    urls: tuple[str, ...], chat: ChatFormat, adapters: Callable[..., Path]
) -> None:
    one, other = (open_vllm(VllmConfig(urls=urls, restarts=0), POLICY, SHIPPED, chat) for _ in range(2))
    one.load_adapter(adapters(21))
    other.load_adapter(adapters(22))
    before = other._pool.servers[0].model
    assert len(answers(one, [request("a", prompts(chat, 1)[0])])) == 1
    other.load_adapter(adapters(23))
    assert before not in other._loop.run(other._pool.servers[0].client.served()).adapters
    assert len(answers(one, [request("b", prompts(chat, 1)[0])])) == 1
    one.close()
    other.close()


def test_a_turn_waits_while_its_server_is_given_its_policy(urls: tuple[str, ...], chat: ChatFormat) -> None:
    found = open_vllm(VllmConfig(urls=urls, restarts=0), POLICY, SHIPPED, chat)
    found.load_adapter(None)
    (server,) = found._pool.servers

    async def given() -> None:
        async with server.lock:
            model, server.model = server.model, "policy-not-there-yet"
            await asyncio.sleep(0.5)
            server.model = model

    found._loop.submit(given())
    assert len(answers(found, [request("a", prompts(chat, 1)[0])])) == 1
    found.close()
