"""Part of the GPU check: the vLLM engine beside vLLM's own offline run, and how it gets a policy and shares the device.

    tests/benchmarks/gpu/check.sh vllm
    tests/benchmarks/gpu/check.sh --cpu vllm     # in little on vLLM's CPU build, which is installed on first use

A Qwen2 of random weights in the shape of 1.5B parameters, in bfloat16, with LoRA of rank 16. `vs_offline`: tokens/s of
the pipeline's engine over those of `LLM.generate` on the same turns, all sent at once, in turns. `delivered_s`: a
second adapter, loaded and proven, beside the first. `engine_mismatch`: the learner's log-probs of what the engine
sampled. `asleep`: what the engine keeps on the device once it was told to sleep, and how long it takes to wake it after
the learner has worked there.
"""

import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from gpu.device import attempt, find_device, write_part
from gpu.mfu import LORA, SIZES
from tasks.core.capacity.hardware import GIB
from tasks.core.capacity.memory import Sharing
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.update import UpdateConfig
from tasks.core.engines.vllm.engine import VllmEngine, launch_specs, open_vllm
from tasks.core.engines.vllm.interpreter import vllm_recipe
from tasks.core.engines.vllm.launching import allowed_rank
from tasks.core.engines.vllm.probe_records import ProbeRecords
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.learner.learner import backward, make_learner
from tasks.core.learner.logprobs import compute_fixed_logprobs
from tasks.core.learner.metrics import engine_mismatch
from tasks.core.learner.objective import Objective
from tasks.core.learner.packing import Rollout, pack_rollouts
from tasks.core.learner.proofs import engine_noise
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import read_model_config
from tasks.core.policies.loading import device as device_of
from tasks.core.policies.loading import load_base_model, load_tokenizer, save_policy, trainable_policy
from tasks.core.processes.resources import return_freed_memory

SMALL = Path(__file__).parents[3] / "data/base_policies/pocket"


class Turn(NamedTuple):
    """One assistant turn, asked for in the same words of both."""

    conversation: str
    prompt: list[int]
    max_tokens: int
    stop_ids: tuple[int, ...]
    seed: int


class Contest:
    """Our engine and an offline vLLM, loaded with one base model and one adapter."""

    def __init__(self, base_policy: Path, adapter: Path, engine: VllmEngine, offline: "subprocess.Popen[str]") -> None:
        self.base_policy, self.adapter, self.engine, self._offline = base_policy, adapter, engine, offline

    def offline(self, turns: list[Turn]) -> float:
        """Return vLLM's own tokens per second."""
        answer = json.loads(ask(self._offline, [turn[1:] for turn in turns]))
        return float(answer["tokens"] / answer["seconds"])

    def at_once(self, turns: list[Turn]) -> float:
        """Return the engine's tokens per second, each turn a conversation of its own."""
        tokens, started = 0, time.perf_counter()
        for turn in turns:
            self.submit(turn)
        while generations := self.engine.collect():
            tokens += sum(len(generation.token_ids) for generation in generations)
        seconds = time.perf_counter() - started
        for turn in turns:
            self.engine.release(turn.conversation)
        return tokens / seconds

    def submit(self, turn: Turn) -> None:
        settings = SamplingSettings(1.0, turn.max_tokens, turn.stop_ids)
        self.engine.submit(GenerationRequest(turn.conversation, turn.prompt, settings, turn.seed))

    def end_offline(self) -> None:
        self._offline.kill()
        self._offline.wait()


@contextmanager
def contest(
    base_policy: Path, folder: Path, chat: ChatFormat, policy: PolicyConfig, servers: VllmConfig
) -> Iterator[Contest]:
    adapter = folder / "adapter"
    write_adapter(base_policy, adapter, policy)
    engine = open_vllm(servers, policy, base_policy, chat)
    engine.load_adapter(adapter)
    offline = start_offline(base_policy, adapter, folder / "offline.log", policy, servers)
    one = Contest(base_policy, adapter, engine, offline)
    try:
        yield one
    finally:
        engine.close()
        one.end_offline()


def start_offline(
    base_policy: Path, adapter: Path, log: Path, policy: PolicyConfig, servers: VllmConfig
) -> "subprocess.Popen[str]":
    """With the settings and variables of the server, see `tasks.core.engines.vllm.launching`."""
    kind = device_of(policy).type
    (spec,) = launch_specs(servers, policy, base_policy, kind, Sharing(False, servers.memory_share, "offline"))
    model = {
        "model": str(base_policy.resolve()),
        "dtype": spec.dtype,
        "max_num_seqs": spec.sequences,
        "max_model_len": spec.context_length,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "enable_lora": True,
        "max_lora_rank": allowed_rank(policy.lora.rank),
        "max_loras": 1,
        "enable_prefix_caching": True,
    }
    if kind == "cpu":
        model |= {"block_size": 32, "enforce_eager": True, "enable_chunked_prefill": False}
    else:
        model |= {"gpu_memory_utilization": spec.memory_share}
    process = subprocess.Popen(
        [str(spec.python), "-P", str(Path(__file__).with_name("vllm_offline.py"))],  # kernels.py is not transformers'
        env=spec.variables(log.parent / "cache"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
    )
    assert ask(process, {"model": model, "adapter": str(adapter)}) == "ready\n", log.read_text()[-2000:]
    return process


def ask(process: "subprocess.Popen[str]", message: object) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def write_adapter(base_policy: Path, folder: Path, config: PolicyConfig, seed: int = 1) -> None:
    """One with B not zero."""
    here = config.model_copy(update={"device": "cpu"})
    policy = trainable_policy(load_base_model(base_policy, here), here, None, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.01, generator=generator)
    save_policy(policy, folder)


UPDATE = UpdateConfig(minibatch=8, fold_adapter=False, tokens_per_pack=8192)


class Load(NamedTuple):
    """How much is sampled."""

    conversations: int
    prompt: int
    tokens: int
    rounds: int
    checked: int
    """Conversations whose log-probs the learner computes too."""


ON_A_GPU, IN_LITTLE = Load(256, 512, 128, 3, 32), Load(4, 16, 8, 1, 4)


def save_model(folder: Path) -> Path:
    """Write a model of random weights, whose logits go up to about 20, with the embedded policy's tokenizer."""
    torch.manual_seed(0)
    sizes = SIZES["1.5b"]
    spread = sizes["hidden_size"] ** -0.5
    config = Qwen2Config(**sizes, tie_word_embeddings=False, initializer_range=spread, max_position_embeddings=2048)
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.lm_head.weight.data.mul_(5)
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(SMALL / file, folder)
    return folder


def make_turns(load: Load, vocabulary: int, seed: int) -> list[Turn]:
    """Return a turn for each conversation, after a prompt that no other shares."""
    random = np.random.default_rng(seed)
    prompts = random.integers(0, vocabulary, (load.conversations, load.prompt)).tolist()
    return [Turn(f"{seed}-{place}", prompt, load.tokens, (), place) for place, prompt in enumerate(prompts)]


def throughput(one: Contest, load: Load, vocabulary: int) -> dict[str, Any]:
    """Return tokens/s of both on prompts that each meets for the first time; medians over the rounds."""
    rates = []
    for seed in range(load.rounds + 1):  # the first warms both up
        turns = make_turns(load, vocabulary, seed)
        rates.append({"engine_at_once": one.at_once(turns), "offline_at_once": one.offline(turns)})
    shares = [rate["engine_at_once"] / rate["offline_at_once"] for rate in rates[1:]]
    speeds = {name: round(statistics.median(rate[name] for rate in rates[1:])) for name in rates[0]}
    return {"tokens_per_s": speeds, "vs_offline": {"engine_at_once": round(statistics.median(shares), 3)}}


def seconds_of_delivery(one: Contest, folder: Path, policy: PolicyConfig, chat: ChatFormat, vocabulary: int) -> float:
    """Return how long a second adapter takes to be loaded and proven, with its record, as the learner leaves it."""
    write_adapter(one.base_policy, folder, policy, seed=2)
    ProbeRecords(one.base_policy, policy, chat, vocabulary).of(folder)
    begin = time.perf_counter()
    one.engine.load_adapter(folder)
    return round(time.perf_counter() - begin, 3)


def sampled(one: Contest, turns: list[Turn]) -> list[Rollout]:
    """Return what the engine samples after the turns' prompts, as the learner reads it."""
    prompts, found = {turn.conversation: turn.prompt for turn in turns}, []
    for turn in turns:
        one.submit(turn)
    while generations := one.engine.collect():
        for generation in generations:
            prompt = prompts[generation.sequence_id]
            ids = np.array([*prompt, *generation.token_ids])
            places = np.arange(len(prompt), len(ids))
            logprobs = np.array(generation.logprobs, np.float32)
            found.append(Rollout(ids, places, np.zeros_like(places), logprobs, 1.0))
    return found


def update_beside(base: Path, adapter: Path, policy: PolicyConfig, rollouts: list[Rollout]) -> dict[str, float]:
    """Take the learner's gradient of the rollouts on the device. Returns the mismatch of their log-probs."""
    model = trainable_policy(load_base_model(base, policy), policy, adapter, seed=0)
    learner = make_learner(model, UPDATE).policy
    packs = pack_rollouts(rollouts, range(len(rollouts)), UPDATE.tokens_per_pack, next(model.parameters()).device)
    objective = Objective.of(UPDATE, len(rollouts), temperature=1.0)
    fixed = compute_fixed_logprobs(learner, packs, rollouts, objective)
    backward(learner, fixed.attach(packs), objective)
    return dict(engine_mismatch(rollouts, fixed.old, engine_noise(learner).token).model_dump())


def used_gib(device: torch.device) -> float | None:
    """Return what all processes hold on the device; None on a CPU."""
    if device.type == "cpu":
        return None
    free, total = torch.cuda.mem_get_info()
    return (total - free) / GIB


def sharing(one: Contest, rollouts: list[Rollout], policy: PolicyConfig, before: float | None) -> dict[str, Any]:
    """Let the engine sleep, the learner work, and the engine wake; `before` is what was held before it began."""
    one.engine.sleep()
    held = used_gib(torch.device(policy.device))
    asleep: dict[str, Any] = {} if held is None or before is None else {"held_gib": round(held - before, 3)}
    mismatch = update_beside(one.base_policy, one.adapter, policy, rollouts)
    return_freed_memory()
    begin = time.perf_counter()
    one.engine.load_adapter(one.adapter)
    return {"engine_mismatch": mismatch, "asleep": asleep | {"wake_s": round(time.perf_counter() - begin, 1)}}


def measure(device: torch.device, folder: Path) -> dict[str, Any]:
    """Measure everything on one server."""
    on_gpu = device.type == "cuda"
    python_executable(INTERPRETERS, vllm_recipe(device.type))  # raises before anything large is made
    load, dtype = (ON_A_GPU, "bfloat16") if on_gpu else (IN_LITTLE, "float32")
    policy = PolicyConfig.model_validate({"device": device.type, "dtype": dtype, "lora": LORA})
    servers = VllmConfig(sharing="alternate", memory_share=0.35, context_length=2048, sequences=load.conversations)
    base, chat = save_model(folder / "model") if on_gpu else SMALL, ChatFormat(load_tokenizer(SMALL))
    vocabulary, before = int(read_model_config(base)["vocab_size"]), used_gib(device)
    with contest(base, folder, chat, policy, servers) as one:
        found = throughput(one, load, vocabulary) | {"engine": one.engine.version}
        found["delivered_s"] = seconds_of_delivery(one, folder / "second", policy, chat, vocabulary)
        one.engine.load_adapter(one.adapter)
        rollouts = sampled(one, make_turns(load, vocabulary, 100)[: load.checked])
        one.end_offline()
        return found | sharing(one, rollouts, policy, before)


def main(_: float) -> None:
    device = find_device()
    with tempfile.TemporaryDirectory() as folder:
        write_part("vllm", device, attempt(lambda: measure(device, Path(folder))))
