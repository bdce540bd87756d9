import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from tasks.core.engines.transformers import engine as engine_module
from tasks.core.engines.transformers.engine import TransformersEngine
from tasks.core.interfaces.engine import ContextOverflow, Generation, GenerationRequest, SamplingSettings
from tasks.core.learner.model import narrow_adapter
from tasks.core.policies.policy_weights import PolicyWeights
from tasks.core.processes.resources import CORES_VARIABLE
from tasks.core.records.files import ArtifactError

STOP = 7
Build = Callable[..., PreTrainedModel]
WriteAdapter = Callable[..., Path]
Played = dict[str, tuple[list[int], list[float]]]


def request(
    name: str, prompt: list[int], seed: int = 0, temperature: float = 1.0, tokens: int = 12
) -> GenerationRequest:
    return GenerationRequest(name, prompt, SamplingSettings(temperature, tokens, (STOP,)), seed)


def answer(engine: TransformersEngine, *requests: GenerationRequest) -> dict[str, Generation]:
    for one in requests:
        engine.submit(one)
    done: dict[str, Generation] = {}
    while generations := engine.collect():
        done.update({generation.sequence_id: generation for generation in generations})
    return done


def play(engine: TransformersEngine, conversations: int = 20, seed: int = 0, temperature: float = 1.0) -> Played:
    """Conversations of 1 to 4 turns over 4 different prompts; new ones come while others end. 0.0: not sampled."""
    draw = random.Random(seed)
    start = [draw.randrange(61) for _ in range(30)]
    prompts = [start + [draw.randrange(61) for _ in range(draw.randrange(1, 25))] for _ in range(4)]
    turns = {str(index): draw.randrange(1, 5) for index in range(conversations)}
    played: Played = {name: ([], []) for name in turns}
    coming = list(turns)

    def extend(name: str, context: list[int]) -> None:
        ids, logprobs = played[name]
        ids.extend(context)
        logprobs.extend([0.0] * len(context))
        engine.submit(request(name, ids, draw.randrange(2**62), temperature, draw.randrange(1, 14)))

    for _ in range(conversations // 2):
        extend(coming[0], prompts[int(coming.pop(0)) % 4])
    while generations := engine.collect():
        for generation in generations:
            name = generation.sequence_id
            played[name][0].extend(generation.token_ids)
            played[name][1].extend(generation.logprobs)
            turns[name] -= 1
            if turns[name]:
                extend(name, [draw.randrange(61) for _ in range(draw.randrange(1, 20))])
                continue
            engine.release(name)
            if coming:
                extend(coming[0], prompts[int(coming.pop(0)) % 4])
    assert not any(turns.values())
    return played


def worst_difference(model: torch.nn.Module, played: Played, temperature: float = 1.0) -> float:
    """Largest |engine log-prob - log-prob of a full forward pass| over all sampled ids."""
    worst = []
    for ids, logprobs in played.values():
        with torch.inference_mode():
            full = (model(torch.tensor([ids])).logits[0, :-1] / temperature).log_softmax(-1)
        found, expected = torch.tensor(logprobs[1:]), full.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        worst.append((found - expected)[found != 0].abs().max())
    return float(max(worst))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_those_of_a_full_forward_pass(qwen2: Build, temperature: float) -> None:
    played = play(TransformersEngine(qwen2()), temperature=temperature)
    assert worst_difference(qwen2(), played, temperature) < 1e-4


def test_another_architecture_takes_the_same_path(llama: Build) -> None:
    assert worst_difference(llama(), play(TransformersEngine(llama()))) < 1e-4


def test_a_larger_models_passes_run_side_by_side_and_sample_the_same_on_any_number_of_cores(
    qwen2: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(cores: int) -> tuple[Played, list[torch.Size]]:
        monkeypatch.setenv(CORES_VARIABLE, str(cores))
        engine, fed = TransformersEngine(model := qwen2()), []
        model.get_input_embeddings().register_forward_pre_hook(lambda layer, inputs: fed.append(inputs[0].shape))
        return play(engine), sorted(fed)

    whole, of_all_rows = sample(cores=1)
    monkeypatch.setattr(engine_module, "_WORTH_A_CORE", 0)
    monkeypatch.setattr(engine_module, "_LEAST_ROWS", 3)
    monkeypatch.setattr(engine_module, "_PREFILL_POSITIONS", (40, 4096))
    alone, fed = sample(cores=1)
    assert len(fed) > len(of_all_rows)
    assert all(shape[0] % 16 == 0 and shape[1] == 1 for shape in fed)
    assert sample(cores=3) == (alone, fed)
    assert alone == whole
    assert worst_difference(qwen2(), alone) < 1e-4


@pytest.mark.parametrize("part", ["lm_head", "model.norm", "model.layers.1.mlp", "model.layers.1.self_attn.o_proj"])
def test_prefill_leaves_out_all_that_follows_the_last_layers_states(qwen2: Build, part: str) -> None:
    model, rows = qwen2(), []
    assert model.config.num_hidden_layers == 2
    engine = TransformersEngine(model)
    model.get_submodule(part).register_forward_hook(lambda layer, inputs, found: rows.append(found.shape[:-1].numel()))
    done = answer(engine, *(request(str(index), [index, 5, 9, 11], tokens=1) for index in range(12)))
    assert sum(len(generation.token_ids) for generation in done.values()) == 12
    assert rows == [16]  # one step, in whole tiles


def test_a_lora_adapter_samples_as_peft_does(qwen2: Build, write_adapter: WriteAdapter) -> None:
    engine, folder = TransformersEngine(qwen2()), write_adapter()
    engine.load_adapter(folder)
    played = play(engine)
    assert worst_difference(peft.PeftModel.from_pretrained(qwen2(), folder), played) < 1e-4
    assert worst_difference(qwen2(), played) > 0.1


def test_an_adapter_beside_low_precision_weights_is_not_rounded_away(qwen2: Build, write_adapter: WriteAdapter) -> None:
    model, folder = qwen2().to(torch.bfloat16), write_adapter()
    PolicyWeights(model).load(folder)
    learner_s = peft.PeftModel.from_pretrained(qwen2().to(torch.bfloat16), folder)
    narrow_adapter(learner_s)
    exact = peft.PeftModel.from_pretrained(qwen2(), folder)
    ids = torch.tensor([list(range(20))])
    with torch.inference_mode():
        found, base = model(ids).logits, qwen2().to(torch.bfloat16)(ids).logits
        assert torch.equal(found, learner_s(ids).logits)
        assert (found - exact(ids).logits).norm() < (base - qwen2()(ids).logits).norm() * 1.25
        assert not torch.equal(found, base)


def test_the_base_comes_back_to_the_bit(qwen2: Build, write_adapter: WriteAdapter, tmp_path: Path) -> None:
    engine = TransformersEngine(qwen2())
    base = play(engine)
    other = qwen2(initializer_range=0.03)
    torch.nn.init.normal_(other.model.layers[0].mlp.up_proj.weight)
    save_file(_untied(other), tmp_path / "model.safetensors")
    for folder in (write_adapter(), tmp_path, write_adapter(lora_alpha=1)):
        engine.load_adapter(folder)
        assert play(engine) != base
    engine.load_adapter(None)
    assert play(engine) == base


def test_full_weights_replace_the_base(qwen2: Build, tmp_path: Path) -> None:
    trained = qwen2()
    with torch.no_grad():
        for weight in trained.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(8)), alpha=0.1)
    save_file(_untied(trained), tmp_path / "model.safetensors")
    engine = TransformersEngine(qwen2())
    engine.load_adapter(tmp_path)
    assert worst_difference(trained, play(engine)) < 1e-4


def _untied(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}


def test_the_same_requests_give_the_same_bytes(qwen2: Build) -> None:
    assert play(TransformersEngine(qwen2())) == play(TransformersEngine(qwen2()))


def test_company_does_not_change_what_is_sampled(qwen2: Build) -> None:
    requests = [request(str(index), [index, 5, 9], seed=100 + index) for index in range(12)]
    together = answer(TransformersEngine(qwen2()), *requests)
    for one in requests:
        alone = answer(TransformersEngine(qwen2()), one)[one.sequence_id]
        assert alone.token_ids == together[one.sequence_id].token_ids
    assert len({generation.token_ids for generation in together.values()}) == 12


def test_a_prompt_that_contradicts_the_cache_is_read_anew(qwen2: Build) -> None:
    engine = TransformersEngine(qwen2())
    answer(engine, request("a", [1, 2, 3, 4, 5]), request("b", [9, 9, 9]))
    for prompt in ([1, 2, 8, 8, 8, 8], [8], [1, 2, 8, 8]):
        changed = answer(engine, request("a", prompt, seed=5))["a"]
        fresh = answer(TransformersEngine(qwen2()), request("a", prompt, seed=5))["a"]
        assert changed.token_ids == fresh.token_ids
        assert changed.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)


def test_a_turn_ends_at_a_stop_id_at_its_limit_or_at_the_end_of_the_context(qwen2: Build) -> None:
    engine = TransformersEngine(qwen2(context=40))
    done = answer(engine, *(request(str(seed), [1, 2], seed, tokens=30) for seed in range(40)))
    stopped = [generation for generation in done.values() if generation.stop_reason == "stop"]
    cut = [generation for generation in done.values() if generation.stop_reason == "length"]
    assert stopped and cut
    assert all(generation.token_ids.index(STOP) == len(generation.token_ids) - 1 for generation in stopped)
    assert all(len(generation.token_ids) == 30 and STOP not in generation.token_ids for generation in cut)
    last = answer(engine, request("end", [1] * 39))["end"]
    assert len(last.token_ids) == 1
    with pytest.raises(ContextOverflow, match="end") as caught:
        engine.submit(request("end", [1] * 40))
    assert caught.value.sequence_id == "end"


def test_greedy_and_sampled_conversations_share_a_batch(qwen2: Build) -> None:
    done = answer(
        TransformersEngine(qwen2()), request("greedy", [3, 4], temperature=0), request("sampled", [3, 4], seed=2)
    )
    ids = [3, 4]
    for token in done["greedy"].token_ids:
        with torch.inference_mode():
            assert token == int(qwen2()(torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)
    assert done["greedy"].token_ids != done["sampled"].token_ids


def test_a_conversation_that_waits_beyond_the_caches_rows_may_take_a_released_ones_place(qwen2: Build) -> None:
    engine = TransformersEngine(qwen2())
    answer(engine, request("first", [1, 2, 3], tokens=2))
    late = [request(f"late{number}", [number, 5, 6], seed=number, tokens=4) for number in range(8)]
    for one in late:
        engine.submit(one)
    engine.release("first")
    alone = answer(TransformersEngine(qwen2()), late[-1])
    assert answer(engine)[late[-1].sequence_id].token_ids == alone[late[-1].sequence_id].token_ids


def test_a_released_conversation_is_not_returned(qwen2: Build) -> None:
    engine = TransformersEngine(qwen2())
    for name in "abc":
        engine.submit(request(name, [ord(name) % 61, 3], seed=1))
    engine.release("a")
    engine.release("unknown")
    names = set()
    while generations := engine.collect():
        names |= {generation.sequence_id for generation in generations}
    assert names == {"b", "c"}
    assert engine.collect() == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request("x", []), "at least one id"),
        (request("x", [61]), r"0 \.\. 60"),
        (request("x", [-1]), r"0 \.\. 60"),
        (request("x", [1], tokens=0), "max_tokens"),
        (request("x", [1], temperature=-1), "temperature"),
    ],
)
def test_a_bad_request_is_refused_and_leaves_no_trace(qwen2: Build, bad: GenerationRequest, message: str) -> None:
    engine = TransformersEngine(qwen2())
    with pytest.raises(ValueError, match=message):
        engine.submit(bad)
    assert engine.collect() == []


def test_a_second_turn_waits_for_the_first(qwen2: Build) -> None:
    engine = TransformersEngine(qwen2())
    engine.submit(request("a", [1]))
    with pytest.raises(ValueError, match="still being sampled"):
        engine.submit(request("a", [1, 2]))


def _without(name: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors.pop(name)


def _with(name: str, *shape: int) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors.update({name: torch.zeros(shape)})


def _half(tensors: dict[str, Tensor]) -> None:
    """Leave out both matrices of a module, as a file does that was written by half."""
    for side in "AB":
        tensors.pop(f"base_model.model.model.layers.1.mlp.up_proj.lora_{side}.weight")


_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
_B = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without(_A), "q_proj.lora_A.weight is missing"),
        (_half, "up_proj.lora_A.weight is missing"),
        (lambda tensors: tensors[_A].mul_(float("nan")), r"q_proj.lora_A.weight is not finite"),
        (_with("base_model.model.model.layers.7.mlp.up_proj.lora_A.weight", 3, 32), "no module model.layers.7"),
        (_with("base_model.model.model.norm.lora_A.weight", 3, 32), "norm is a Qwen2RMSNorm"),
        (_with("surplus", 1), "tensor surplus is not part"),
        (_with(_B, 47, 3), r"up_proj.lora_B.weight has shape \(47, 3\).*48, 3"),
        (_with(_A, 2, 32), r"q_proj.lora_A.weight has shape \(2, 32\).*3, 32"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_by_tensor(
    qwen2: Build, write_adapter: WriteAdapter, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    good = write_adapter()
    tensors = load_file(good / "adapter_model.safetensors")
    change(tensors)
    engine = TransformersEngine(qwen2())
    engine.load_adapter(good)
    before = play(engine, conversations=2)
    with pytest.raises(ValueError, match=message):
        engine.load_adapter(write_adapter(tensors))
    assert play(engine, conversations=2) == before


@pytest.mark.parametrize(
    "setting",
    [
        {"use_dora": True},
        {"bias": "all"},
        {"peft_type": "LOHA"},
        {"alora_invocation_tokens": [5]},
        {"modules_to_save": ["lm_head"]},
        {"rank_pattern": {"q_proj": 2}},
        {"r": None},
    ],
)
def test_an_adapter_of_another_kind_is_refused(
    qwen2: Build, write_adapter: WriteAdapter, setting: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=rf"adapter_config.json: {next(iter(setting))} "):
        TransformersEngine(qwen2()).load_adapter(write_adapter(**setting))


def test_damaged_and_missing_weights_are_named(qwen2: Build, write_adapter: WriteAdapter, tmp_path: Path) -> None:
    engine, folder = TransformersEngine(qwen2()), write_adapter()
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(ArtifactError, match=r"adapter_model.safetensors: damaged"):
        engine.load_adapter(folder)
    weights.unlink()
    with pytest.raises(ArtifactError, match=r"adapter_model.safetensors: missing"):
        engine.load_adapter(folder)
    with pytest.raises(ArtifactError, match=r"nowhere.*missing"):
        engine.load_adapter(tmp_path / "nowhere")


def test_full_weights_that_do_not_fit_are_refused_by_tensor(qwen2: Build, tmp_path: Path) -> None:
    engine, tensors = TransformersEngine(qwen2()), _untied(qwen2())
    save_file({**tensors, "surplus": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="surplus"):
        engine.load_adapter(tmp_path)
    missing = tensors.pop("model.norm.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.norm.weight is missing"):
        engine.load_adapter(tmp_path)
    save_file({**tensors, "model.norm.weight": missing[:-1]}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.norm.weight has shape \(31,\)"):
        engine.load_adapter(tmp_path)


def test_layers_with_a_sliding_window_see_no_more_and_leave_the_context_as_it_is(qwen2: Build) -> None:
    window = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}
    engine, model = TransformersEngine(qwen2(**window)), qwen2(**window)
    assert engine.context_length == 256
    assert worst_difference(model, play(engine)) < 1e-4


def test_a_model_without_a_plain_cache_is_refused(qwen2: Build) -> None:
    model = qwen2()
    model.config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ValueError, match="Qwen2ForCausalLM: layers of type linear_attention"):
        TransformersEngine(model)
