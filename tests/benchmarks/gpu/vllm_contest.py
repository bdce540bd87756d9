"""The vLLM engine beside vLLM's own offline throughput (`LLM.generate`): same prompts, seeds, adapter and machine.

All turns are sent at once to both; the GPU check's parts `vllm` and `invariance` measure and compare.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch

from tasks.core.capacity.memory import Sharing
from tasks.core.config.policy import PolicyConfig
from tasks.core.engines.vllm.engine import VllmEngine
from tasks.core.engines.vllm.launching import allowed_rank
from tasks.core.engines.vllm.opening import launch_specs, open_vllm
from tasks.core.engines.vllm.settings import VllmConfig
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.loading import device, load_base_model, save_policy, trainable_policy

SMALL = Path(__file__).parents[3] / "data/base_policies/pocket"
POLICY = PolicyConfig(device="cpu")
SERVERS = VllmConfig()


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
        self.base_policy, self.adapter, self.engine = base_policy, adapter, engine
        self._offline = offline

    def offline(self, turns: list[Turn]) -> float:
        """Return vLLM's own tokens per second."""
        answer = ask(self._offline, [[turn[1:] for turn in turns]])
        return float(answer["tokens"] / answer["seconds"])

    def at_once(self, turns: list[Turn]) -> float:
        """Return the engine's tokens per second, each turn a conversation of its own."""
        tokens, started = 0, perf_counter()
        for turn in turns:
            self.submit(turn)
        while generations := self.engine.collect():
            tokens += sum(len(generation.token_ids) for generation in generations)
        seconds = perf_counter() - started
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
    base_policy: Path, folder: Path, chat: ChatFormat, policy: PolicyConfig = POLICY, servers: VllmConfig = SERVERS
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
    kind = device(policy).type
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
        [
            str(spec.python),
            "-P",
            str(Path(__file__).with_name("vllm_offline.py")),
        ],  # kernels.py here is not transformers'
        env=spec.variables(log.parent / "cache"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
    )
    tell(process, {"model": model, "adapter": str(adapter)})
    assert process.stdout is not None and process.stdout.readline() == "ready\n", log.read_text()[-2000:]
    return process


def tell(process: "subprocess.Popen[str]", message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def ask(process: "subprocess.Popen[str]", message: object) -> Any:
    tell(process, message)
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def write_adapter(base_policy: Path, folder: Path, config: PolicyConfig, seed: int = 1) -> None:
    """One with B not zero."""
    here = config.model_copy(update={"device": "cpu"})
    policy = trainable_policy(load_base_model(base_policy, here), here, None, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.01, generator=generator)
    save_policy(policy, folder)
