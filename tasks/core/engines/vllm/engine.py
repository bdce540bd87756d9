"""The Engine over vLLM servers: turns are sent when they are submitted, and finish in any order.

Requests run in an event loop in its own thread; everything else happens in the caller's thread. A turn is the whole
conversation so far with its own seed. So a turn that is lost with its server is requested again, unchanged, when the
server is back.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import psutil

from tasks.core.capacity.flops import ModelShape
from tasks.core.capacity.memory import Sharing, choose_sharing, engine_memory, memory_of
from tasks.core.config.policy import PolicyConfig
from tasks.core.config.stage_inputs import MemoryInputs
from tasks.core.engines.vllm.client import ServerGone
from tasks.core.engines.vllm.interpreter import vllm_recipe
from tasks.core.engines.vllm.launching import LaunchSpec
from tasks.core.engines.vllm.probe_records import ProbeRecords
from tasks.core.engines.vllm.server_pool import ServerHandle, ServerPool
from tasks.core.engines.vllm.servers import ExternalServers, OwnServers
from tasks.core.engines.vllm.settings import LEAST_TEMPERATURE, LONGEST_START_S, VllmConfig
from tasks.core.interfaces.engine import Generation, GenerationRequest, check_request, check_room
from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import read_model_config
from tasks.core.processes.event_loop import EventLoopThread


@dataclass(eq=False)
class _Turn:
    request: GenerationRequest
    server: ServerHandle
    future: "Future[Generation] | None" = None


class VllmEngine:
    """A `BackgroundEngine` that also `ProvesDelivery` (see `tasks.core.interfaces.engine`)."""

    def __init__(self, pool: ServerPool, vocabulary: int, device: str, *, releases_device: bool) -> None:
        """Prepare the engine. `vocabulary` is the base model's number of ids."""
        self.name, self.releases_device = "vllm", releases_device
        self._pool, self._vocabulary, self._device = pool, vocabulary, device
        self._home: dict[str, ServerHandle] = {}
        self._turns: dict[str, _Turn] = {}
        self._done: SimpleQueue[_Turn] = SimpleQueue()
        self._callback: Callable[[], None] = lambda: None
        self._loop = EventLoopThread("vllm")

    @property
    def version(self) -> str:
        return f"vllm {self._pool.served.version} ({self._device})"

    @property
    def context_length(self) -> int:
        return self._pool.context_length

    def load_adapter(self, path: Path | None) -> None:
        """Deliver the checkpoint at `path` to every server and prove that the server samples from it. Aborts all turns.

        Raises ArtifactError or ValueError for a checkpoint that is damaged or does not fit, WrongPolicy when a server
        samples from something else, EngineUnavailable when there is no server.
        """
        for name in list(self._turns):
            self.release(name)
        self._home.clear()
        self._loop.run(self._pool.sync_weights(self._pool.start(path)))

    def take_deliveries(self) -> list[dict[str, Any]]:
        return [delivery.figures() for delivery in self._pool.take_deliveries()]

    def submit(self, request: GenerationRequest) -> None:
        """Send one turn to a server.

        Raises ContextOverflow, or ValueError for whatever `TransformersEngine` refuses and for a temperature between 0
        and 0.01.
        """
        self._check(request)
        server = self._home.get(request.sequence_id) or min(self._pool.servers, key=lambda server: len(server.turns))
        self._home[request.sequence_id] = server
        server.turns.add(request.sequence_id)
        turn = self._turns[request.sequence_id] = _Turn(request, server)
        turn.future = self._loop.submit(self._play(turn))
        turn.future.add_done_callback(lambda _: self._report(turn))

    def collect(self) -> list[Generation]:
        """Wait until at least one turn is done. Returns all finished turns; [] when nothing is queued.

        Raises ServerLost when a server died more often than `restarts` allows.
        """
        generations: list[Generation] = []
        while self._turns and not generations:
            generations = [*self._taken(self._done.get()), *self.ready()]
        return generations

    def ready(self) -> list[Generation]:
        """Return the turns that are done by now."""
        generations: list[Generation] = []
        while True:
            try:
                generations += self._taken(self._done.get_nowait())
            except Empty:
                return generations

    def notify(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def release(self, sequence_id: str) -> None:
        """Forget a conversation and abort its turn."""
        self._home.pop(sequence_id, None)
        turn = self._turns.pop(sequence_id, None)
        if turn is not None and turn.future is not None:
            turn.server.turns.discard(sequence_id)
            turn.future.cancel()

    def sleep(self) -> None:
        """End our servers if the update needs their device; nothing will be sampled for a while."""
        if self.releases_device:
            self._pool.stop()

    def close(self) -> None:
        """Abort everything; end the servers that end with this process."""
        if self._loop.is_closed:
            return
        for name in list(self._turns):
            self.release(name)
        self._loop.run(self._pool.disconnect())
        self._loop.close()
        self._pool.close()

    def _check(self, request: GenerationRequest) -> None:
        check_request(request, self._vocabulary)
        name = request.sequence_id
        if 0 < request.sampling.temperature < LEAST_TEMPERATURE:
            raise ValueError(f"{name}: vLLM samples at a temperature of {LEAST_TEMPERATURE} or more, or greedily at 0")
        if name in self._turns:
            raise ValueError(f"{name}: its last turn is still being sampled")
        check_room(request, self.context_length)

    def _report(self, turn: _Turn) -> None:
        """Register, in the loop's thread, a turn that finished, failed or was aborted."""
        turn.server.turns.discard(turn.request.sequence_id)
        self._done.put(turn)
        self._callback()

    def _taken(self, turn: _Turn) -> list[Generation]:
        """Return the generation of a finished turn; empty if the turn was aborted meanwhile."""
        name = turn.request.sequence_id
        if self._turns.get(name) is not turn or turn.future is None:
            return []
        del self._turns[name]
        return [turn.future.result()]

    async def _play(self, turn: _Turn) -> Generation:
        request, server = turn.request, turn.server
        sampling, prompt = request.sampling, request.prompt_ids
        while True:
            async with server.lock:  # during weight sync the server would sample from another policy, or refuse
                epoch = server.epoch
            try:
                sampled = await server.client.sample(
                    server.model,
                    prompt,
                    temperature=sampling.temperature,
                    max_tokens=min(sampling.max_tokens, self.context_length - len(prompt)),
                    stop_ids=sampling.stop_ids,
                    seed=request.seed,
                    top_k=sampling.top_k,
                    top_p=sampling.top_p,
                )
            except ServerGone as gone:
                # Shielded: if this turn is aborted, other turns still wait for the server.
                await asyncio.shield(self._pool.restart(server, epoch, gone))
            else:
                reason: Any = "stop" if sampled.ids[-1] in sampling.stop_ids else "length"
                return Generation(request.sequence_id, tuple(sampled.ids), tuple(sampled.logprobs), reason)


def open_vllm(
    config: VllmConfig, policy: PolicyConfig, base_policy: Path, chat: ChatFormat, memory: MemoryInputs | None = None
) -> VllmEngine:
    """Return the engine over servers of the base model in `base_policy`; our own start with the first policy.

    `memory` decides what an update will need on our servers' device; None: nothing is trained there.

    Raises InterpreterUnavailable when vLLM can't be installed, ValueError for settings that don't fit each other.
    """
    from tasks.core.policies.loading import device

    kind = device(policy).type
    sharing = _sharing(config, policy, base_policy, kind, learner_bytes(memory, base_policy, kind))
    provider: ExternalServers | OwnServers
    if config.urls:
        provider = ExternalServers(config.urls, LONGEST_START_S)
    else:
        print(f"vLLM: {sharing.reason}", file=sys.stderr)
        provider = OwnServers(launch_specs(config, policy, base_policy, kind, sharing), LONGEST_START_S)
    vocabulary = int(read_model_config(base_policy)["vocab_size"])
    pool = ServerPool(provider, ProbeRecords(base_policy, policy, chat, vocabulary), config)
    return VllmEngine(pool, vocabulary, kind, releases_device=sharing.releases_device and not config.urls)


def launch_specs(
    config: VllmConfig, policy: PolicyConfig, base_policy: Path, kind: str, sharing: Sharing
) -> Sequence[LaunchSpec]:
    """Return how to start each own server; server i gets the GPUs after those of server i - 1.

    Raises ValueError for what vLLM has on GPUs alone.
    """
    if config.batch_invariant and kind != "cuda":
        raise ValueError("engine.vllm.batch_invariant: vLLM has this mode for GPUs alone; set it to false on a CPU")
    python = python_executable(INTERPRETERS, vllm_recipe(kind))
    per_server = config.gpus_per_server
    return [
        LaunchSpec(
            python=python,
            model=base_policy.resolve(),
            device=kind,
            dtype=policy.dtype,
            lora_rank=policy.lora.rank if policy.trained == "lora" else None,
            sequences=config.sequences,
            context_length=config.context_length,
            memory_share=round(sharing.memory_share, 2) if kind == "cuda" else 0.0,
            kv_cache_gib=config.kv_cache_gib,
            cpu_threads=policy.cpu_threads,
            gpus=tuple(range(index * per_server, (index + 1) * per_server)) if kind == "cuda" else (),
            batch_invariant=config.batch_invariant,
            arguments=config.arguments,
        )
        for index in range(config.servers)
    ]


def learner_bytes(memory: MemoryInputs | None, base_policy: Path, kind: str) -> float | None:
    """Return the bytes that updates will need on a device shared with our servers; None for a run without training."""
    return None if memory is None else memory_of(memory, read_model_config(base_policy), kind).learner.total


def _sharing(config: VllmConfig, policy: PolicyConfig, base_policy: Path, kind: str, learner: float | None) -> Sharing:
    spread = config.gpus_per_server if kind == "cuda" else 1
    weights = engine_memory(ModelShape.of_config(read_model_config(base_policy)), policy, spread).loaded
    servers = 1 if kind == "cuda" else config.servers
    return choose_sharing(config, weights=weights, learner=learner, memory=_memory(kind), servers=servers)


def _memory(kind: str) -> int:
    """Return the total bytes of the device that updates use, free or not, so that all stages of a run decide alike."""
    if kind == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[1])
    return int(psutil.virtual_memory().total)
