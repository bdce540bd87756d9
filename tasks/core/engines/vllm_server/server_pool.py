"""The servers of an engine and the policy that they were given: weight sync, proof of it, restart of a dead server."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks.core.config.engine import VllmConfig
from tasks.core.engines.vllm_server.client import Served, ServerClient
from tasks.core.engines.vllm_server.errors import EngineUnavailable, ServerGone, ServerLost
from tasks.core.engines.vllm_server.launching import Address
from tasks.core.engines.vllm_server.server_provider import ServerProvider
from tasks.core.engines.vllm_server.weight_sync_check import LocalModel, check_weight_sync
from tasks.core.policies.checkpoint_files import ADAPTER_WEIGHTS, policy_digest, weights_file

_PREFIX = "policy-"
"""Adapters that we loaded are called this and 16 digits of their digest."""
_PROBE_TOKENS = 32
_PROBE_SEED = 20250201
_COMMON_IDS = 256
"""Every vocabulary has these ids: an id that a server lacks would kill it."""


@dataclass
class ServerHandle:
    """One server as the engine sees it."""

    index: int
    client: ServerClient
    model: str = ""
    turns: set[str] = field(default_factory=set)
    """Conversations with a turn in flight or waiting here."""
    restarts: int = 0
    epoch: int = 0
    """Counts its replacements: who lost a turn in an earlier epoch need not replace it again."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ServerPool:
    """All servers. Coroutines run in the engine's event loop, everything else in the caller's thread."""

    def __init__(
        self, provider: ServerProvider, local: LocalModel, config: VllmConfig, probe: Sequence[int], vocabulary: int
    ) -> None:
        """`probe` are the ids of some conversation's opening, `vocabulary` the base model's number of ids."""
        self._provider, self._local, self._config = provider, local, config
        self._probe, self._vocabulary = list(probe), vocabulary
        self._policy: Path | None = None
        self._previous: Path | None = None
        self._served: Served | None = None
        self._servers: list[ServerHandle] = []

    @property
    def served(self) -> Served:
        """The servers' account of themselves, the shortest context. Raises EngineUnavailable without a policy."""
        if self._served is None:
            raise EngineUnavailable("no policy is loaded: load_adapter comes first, and must succeed")
        return self._served

    @property
    def context_length(self) -> int:
        return self._room(self.served)

    def least_busy(self) -> ServerHandle:
        return min(self._servers, key=lambda one: len(one.turns))

    def start(self, policy: Path | None) -> list[Address]:
        """Have the servers up for `policy`, which `sync_weights` then gives to them."""
        self._previous = self._policy if self._served is not None else None
        self._served, self._policy = None, policy
        if policy is not None:
            policy_digest(policy)
        return self._provider.start(policy if policy is not None and not _is_adapter(policy) else None)

    def stop(self) -> None:
        """End the servers that are ours."""
        self._served = None
        self._provider.stop()

    def close(self) -> None:
        """End the servers that nobody can use after this process."""
        self._served = None
        self._provider.close()

    async def sync_weights(self, addresses: Sequence[Address]) -> None:
        """Give the servers at `addresses` the policy and prove that they have it."""
        await self.disconnect()
        self._servers = [ServerHandle(index, self._client(address)) for index, address in enumerate(addresses)]
        try:
            served = [await self._sync(server) for server in self._servers]
        except ServerGone as gone:
            raise ServerLost(f"a vLLM server died while it was given its policy: {gone}") from None
        self._served = min(served, key=lambda one: one.context_length)

    async def disconnect(self) -> None:
        for server in self._servers:
            await server.client.close()
        self._servers = []

    async def restart(self, server: ServerHandle, epoch: int, gone: ServerGone) -> None:
        """Bring a dead server back, once for all the turns that were lost with it. Raises ServerLost."""
        async with server.lock:
            if server.epoch != epoch:
                return
            if server.restarts >= self._config.restarts:
                limit = f"no restarts are left (engine.vllm.restarts: {self._config.restarts})"
                raise ServerLost(f"vLLM server {server.index} is gone, {limit}: {gone}")
            server.restarts += 1
            print(f"vLLM server {server.index} is gone ({gone}); waiting for it to come back", file=sys.stderr)
            address = await asyncio.to_thread(self._provider.restart, server.index)
            await server.client.close()
            server.client = self._client(address)
            try:
                await self._sync(server)
            except ServerGone as again:
                raise ServerLost(f"vLLM server {server.index} died again at once: {again}") from None
            server.epoch += 1

    def _client(self, address: Address) -> ServerClient:
        return ServerClient(address, self._config.sequences, self._config.turn_timeout_s)

    async def _sync(self, server: ServerHandle) -> Served:
        """Give one server the policy and prove that it has it; older adapters of ours are unloaded."""
        client, policy = server.client, self._policy
        served = await client.served()
        server.model = served.base
        if self._provider.found:
            await self._check_base(client, served)
        if policy is None or not _is_adapter(policy):
            await self._prove(client, served, {})
            return served
        server.model = f"{_PREFIX}{policy_digest(policy)[:16]}"
        if server.model not in served.adapters:
            await self._load(client, server.model, policy)
        try:
            await self._prove(client, served._replace(base=server.model), self._earlier(served, policy))
        except ValueError:
            await client.unload_adapter(server.model)
            raise
        for name in served.adapters:
            if name.startswith(_PREFIX) and name != server.model:
                await client.unload_adapter(name)
        return served

    async def _load(self, client: ServerClient, name: str, policy: Path) -> None:
        try:
            await client.load_adapter(name, policy)
        except ValueError as refusal:
            # Local weights say more precisely what is wrong with a checkpoint that does not fit.
            await asyncio.to_thread(self._local.logprobs, [policy], [0, 0])
            raise ValueError(f"{policy}: {refusal}") from None

    def _earlier(self, served: Served, policy: Path) -> dict[str, Path | None]:
        """The policies that the server may be sampling from instead."""
        held = [Path(root) for name, root in served.adapters.items() if name.startswith(_PREFIX)]
        known = [folder for folder in [*held, self._previous] if folder is not None and folder != policy.resolve()]
        others = {str(folder): folder for folder in known if folder != policy and weights_file(folder).exists()}
        return {"the base model": None, **others}

    async def _check_base(self, client: ServerClient, served: Served) -> None:
        """A found server may serve anything: compare its base model with ours on ids that every model has."""
        ids = [(17 * place + place * place) % min(_COMMON_IDS, self._vocabulary) for place in range(_PROBE_TOKENS)]
        await self._compare(client, served.base, ids, 1, {}, f"{client.url} (serving {served.root})")

    async def _prove(self, client: ServerClient, served: Served, others: dict[str, Path | None]) -> None:
        room = self._room(served)
        tokens = min(_PROBE_TOKENS, max(1, room // 2))
        await self._compare(client, served.base, self._probe[: room - tokens], tokens, others, client.url, self._policy)

    async def _compare(
        self,
        client: ServerClient,
        model: str,
        prompt: list[int],
        tokens: int,
        others: dict[str, Path | None],
        server: str,
        policy: Path | None = None,
    ) -> None:
        """Sample a probe; compare the log-probs of prompt and turn with the local weights'. Raises WrongPolicy."""
        probe = await client.sample(
            model,
            prompt,
            temperature=1.0,
            max_tokens=tokens,
            stop_ids=(),
            seed=_PROBE_SEED,
            prompt_logprobs=True,
        )
        policies = [policy, *others.values()]
        expected, *rest = await asyncio.to_thread(self._local.logprobs, policies, prompt + probe.ids)
        answer = probe.prompt_logprobs + probe.logprobs
        check_weight_sync(answer, expected, dict(zip(others, rest, strict=True)), self._local.precision, server)

    def _room(self, served: Served) -> int:
        return min(served.context_length, self._config.context_length or sys.maxsize)


def _is_adapter(folder: Path) -> bool:
    return weights_file(folder).name == ADAPTER_WEIGHTS
