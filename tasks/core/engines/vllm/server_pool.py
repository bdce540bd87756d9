"""An engine's servers and the policy that they hold: weight sync, its proof, and restarts of dead servers."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks.core.engines.vllm.client import EngineUnavailable, Served, ServerClient, ServerGone, ServerLost, WrongPolicy
from tasks.core.engines.vllm.delivery import Delivery, prove_delivery, require_base
from tasks.core.engines.vllm.launching import Address
from tasks.core.engines.vllm.probe_records import ProbeRecords
from tasks.core.engines.vllm.servers import ExternalServers, OwnServers
from tasks.core.engines.vllm.settings import LONGEST_TURN_S, VllmConfig
from tasks.core.policies.checkpoint_files import ADAPTER_WEIGHTS, policy_digest, weights_file
from tasks.core.records.delivery_probe import DeliveryProbe

_PREFIX = "policy-"
"""Prefix of the adapters that we load; 16 digits of their digest follow."""


@dataclass
class ServerHandle:
    """A server as the engine sees it."""

    index: int
    client: ServerClient
    model: str = ""
    turns: set[str] = field(default_factory=set)
    """Conversations with a turn in flight or waiting here."""
    restarts: int = 0
    epoch: int = 0
    """Counts restarts: a turn lost in an earlier epoch need not restart the server again."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ServerPool:
    """All servers of an engine. Coroutines run in the engine's event loop, everything else in the caller's thread."""

    def __init__(self, provider: OwnServers | ExternalServers, records: ProbeRecords, config: VllmConfig) -> None:
        self._provider, self._records, self._config = provider, records, config
        self._policy: Path | None = None
        self._served: Served | None = None
        self.servers: list[ServerHandle] = []
        self._deliveries: list[Delivery] = []
        self._loaded: set[str] = set()
        """Names of our adapters; external servers may also hold those of others."""

    @property
    def served(self) -> Served:
        """Description of the server with the shortest context. Raises EngineUnavailable if no policy is loaded."""
        if self._served is None:
            raise EngineUnavailable("no policy is loaded: load_adapter comes first, and must succeed")
        return self._served

    @property
    def context_length(self) -> int:
        return self._room(self.served)

    def start(self, policy: Path | None) -> list[Address]:
        """Start the servers for `policy`; `sync_weights` then delivers it."""
        self._served, self._policy = None, policy
        if policy is not None:
            policy_digest(policy)
        return self._provider.start(policy if policy is not None and not _is_adapter(policy) else None)

    def stop(self) -> None:
        """End our servers."""
        self._served = None
        self._provider.stop()

    def close(self) -> None:
        """End the servers that nobody can use after this process."""
        self._served = None
        self._provider.close()

    async def sync_weights(self, addresses: Sequence[Address]) -> None:
        """Deliver the policy to the servers at `addresses`, all at once, and prove that they have it."""
        await self.disconnect()
        self.servers = [ServerHandle(index, self._client(address)) for index, address in enumerate(addresses)]
        probe = await asyncio.to_thread(self._records.of, self._policy)
        # Let every sync finish: a server that is refused unloads its adapter, which another failure must not interrupt.
        synced = await asyncio.gather(*(self._begin(server, probe) for server in self.servers), return_exceptions=True)
        for error in synced:
            if isinstance(error, ServerGone):
                raise ServerLost(f"a vLLM server died while it loaded the policy: {error}") from None
            if isinstance(error, BaseException):
                raise error from None
        self._served = min(
            (server for server in synced if isinstance(server, Served)), key=lambda server: server.context_length
        )

    def take_deliveries(self) -> list[Delivery]:
        """Return the deliveries proven since the last call."""
        taken, self._deliveries = self._deliveries, []
        return taken

    async def disconnect(self) -> None:
        for server in self.servers:
            await server.client.close()
        self.servers = []

    async def _begin(self, server: ServerHandle, probe: DeliveryProbe) -> Served:
        """Sync a server for the first time. One of others' may come back; our own died of what it was given."""
        try:
            return await self._sync(server, probe)
        except ServerGone as gone:
            if not self._provider.found:
                raise
            await self.restart(server, server.epoch, gone)
            return await server.client.served()

    async def restart(self, server: ServerHandle, epoch: int, gone: ServerGone) -> None:
        """Restart a dead server, once for all turns lost with it. Raises ServerLost."""
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
            probe = await asyncio.to_thread(self._records.of, self._policy)
            try:
                await self._sync(server, probe)
            except ServerGone as again:
                raise ServerLost(f"vLLM server {server.index} died again right after its restart: {again}") from None
            server.epoch += 1

    def _client(self, address: Address) -> ServerClient:
        return ServerClient(address, self._config.sequences, LONGEST_TURN_S)

    async def _sync(self, server: ServerHandle, probe: DeliveryProbe) -> Served:
        """Deliver the policy to one server, prove it, and unload older adapters of ours.

        On our servers those are all adapters, whichever stage loaded them; on external servers, those that this pool
        loaded.
        """
        client, policy = server.client, self._policy
        served = await client.served()
        server.model = served.base
        if self._provider.found:
            await require_base(client, served.base, served.root, probe)
        if policy is None or not _is_adapter(policy):
            await self._prove(server, served, probe)
            return served
        server.model = f"{_PREFIX}{policy_digest(policy)[:16]}"
        if not await self._holds_already(server, served, probe):
            await self._load(client, server.model, policy)
            try:
                await self._prove(server, served, probe)
            except ValueError:
                await client.unload_adapter(server.model)
                raise
        for name in served.adapters:
            ours = name in self._loaded if self._provider.found else name.startswith(_PREFIX)
            if ours and name != server.model:
                await client.unload_adapter(name)
        return served

    async def _holds_already(self, server: ServerHandle, served: Served, probe: DeliveryProbe) -> bool:
        """Return whether an adapter with the policy's name is loaded and is the policy; otherwise unload it."""
        if server.model not in served.adapters:
            return False
        try:
            await self._prove(server, served, probe)
        except WrongPolicy as wrong:
            print(
                f"vLLM server {server.index} serves another policy under this policy's name ({wrong})", file=sys.stderr
            )
            await server.client.unload_adapter(server.model)
            return False
        return True

    async def _load(self, client: ServerClient, name: str, policy: Path) -> None:
        try:
            await client.load_adapter(name, policy)
        except ValueError as refusal:
            # A check against the base model's shapes explains more precisely why a checkpoint does not fit.
            await asyncio.to_thread(self._records.require_fit, policy)
            raise ValueError(f"{policy}: {refusal}") from None
        self._loaded.add(name)

    async def _prove(self, server: ServerHandle, served: Served, probe: DeliveryProbe) -> None:
        proof = await prove_delivery(server.client, server.model, self._policy, probe, self._room(served))
        self._deliveries.append(proof)

    def _room(self, served: Served) -> int:
        return min(served.context_length, self._config.context_length or sys.maxsize)


def _is_adapter(folder: Path) -> bool:
    return weights_file(folder).name == ADAPTER_WEIGHTS
