"""A client for one server over HTTP: `/inference/v1/generate` (token ids in and out), `/v1/models`, adapter routes.

Based on vLLM 0.32.0 (vllm/entrypoints/scale_out/token_in_token_out and vllm/entrypoints/openai/models): no text and no
tokenizer involved, sampling parameters as the engine takes them, and the sampled stop token included. The messages of
its errors tell a user everything needed.
"""

import asyncio
import json
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tasks.core.engines.vllm.launching import Address
from tasks.core.transient import Transient


class EngineUnavailable(RuntimeError):  # noqa: N818 - reads as what it is
    """A vLLM server cannot be started, or the address is not a vLLM server."""


class ServerLost(EngineUnavailable, Transient):
    """A vLLM server cannot be reached, or died too often; it may be back after a while."""


class WrongPolicy(ValueError):  # noqa: N818
    """A server does not sample from the policy that it was given."""


class ServerGone(Exception):  # noqa: N818
    """A server did not answer, or reported that its engine is dead; it must be restarted. Never leaves the engine."""


_NOT_FOUND = "No adapter found for"
_DEAD_ENGINE = ("EngineCore", "EngineDead")
_CONNECT_S = 10.0
_HEALTH = aiohttp.ClientTimeout(total=_CONNECT_S)
_ATTEMPTS = 3
_PAUSE_S = 0.5
_PASSING = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""Answers of proxies that describe the server's state, not the request."""


class Served(NamedTuple):
    """A server's description of itself."""

    base: str
    """Its name for the base model."""
    root: str
    """The folder from which the base model was loaded."""
    context_length: int
    adapters: dict[str, str]
    """Folders of the loaded adapters, by name."""
    version: str


class Sampled(NamedTuple):
    """The answer to one request."""

    ids: list[int]
    logprobs: list[float]
    """One per id, at the temperature of the request."""
    prompt_logprobs: list[float]
    """One per prompt id except the first, at temperature 1; empty unless requested."""


class ServerClient:
    """A client for one server, used from one event loop; at most `sequences` turns are in flight.

    Raises ServerGone when the server does not answer, and ValueError with the server's message when it refuses a
    request.
    """

    def __init__(self, address: Address, sequences: int, turn_s: float) -> None:
        """Create the client, inside the event loop.

        aiohttp: httpx needs 50 times its CPU time for hundreds of connections.
        """
        self.url, self._turn_s = address.url, turn_s
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {address.key}"} if address.key else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=turn_s),
            connector=aiohttp.TCPConnector(limit=0),
        )
        self._slots = asyncio.Semaphore(sequences)

    async def close(self) -> None:
        await self._http.close()

    async def served(self) -> Served:
        """Ask what the server serves. Raises EngineUnavailable if it is not a vLLM server."""
        cards = (await self._call("GET", "/v1/models")).get("data", [])
        version = (await self._call("GET", "/version")).get("version", "unknown")
        base = next((card for card in cards if card.get("parent") is None), None)
        if base is None or not base.get("max_model_len"):
            raise EngineUnavailable(f"{self.url}: not a vLLM server: /v1/models names no base model with max_model_len")
        adapters = {card["id"]: str(card["root"]) for card in cards if card.get("parent") is not None}
        return Served(base["id"], str(base.get("root")), int(base["max_model_len"]), adapters, str(version))

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Load an adapter from a folder, which the server sees at the same path. Raises ValueError with its refusal."""
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        try:
            await self._call("POST", "/v1/load_lora_adapter", body)
        except ValueError as refusal:
            if _NOT_FOUND in str(refusal):
                raise ValueError(
                    f"{self.url} finds no such folder on its machine: share it with that machine at the same path"
                ) from None
            # It may also have the adapter, loaded by an attempt whose answer was lost.
            if (await self.served()).adapters.get(name) != body["lora_path"]:
                raise

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter. No error if it is not loaded."""
        try:
            await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        except ValueError:
            if name in (await self.served()).adapters:
                raise

    async def sample(
        self,
        model: str,
        prompt: Sequence[int],
        *,
        temperature: float,
        max_tokens: int,
        stop_ids: Sequence[int],
        seed: int,
        top_k: int = 0,
        top_p: float = 1.0,
        prompt_logprobs: bool = False,
    ) -> Sampled:
        """Sample one turn. The end-of-text id of the model's config ends it only if it is in `stop_ids`."""
        parameters: dict[str, Any] = {
            "temperature": temperature,
            "max_tokens": max_tokens,
            "stop_token_ids": list(stop_ids),
            "ignore_eos": True,
            "seed": seed,
            "logprobs": 0,
            "detokenize": False,
        }
        if top_k or top_p < 1:
            parameters |= {"top_k": top_k, "top_p": top_p}
        if prompt_logprobs:
            parameters["prompt_logprobs"] = 0
        body = {"model": model, "token_ids": list(prompt), "sampling_params": parameters}
        async with self._slots:
            answer = await self._call("POST", "/inference/v1/generate", body)
        return _sampled(answer, prompt, self.url)

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer's JSON; `body` is sent as JSON.

        Retries broken connections: servers close idle ones, so that says nothing about them.
        """
        for attempt in range(_ATTEMPTS):
            if self._http.closed:
                raise ServerGone(f"{self.url}: another connection found that the server is gone")
            try:
                return await self._once(method, path, body)
            except aiohttp.SocketTimeoutError:
                raise ServerGone(f"{self.url}: no answer in {self._turn_s:g} s") from None
            except aiohttp.ClientError as error:
                if attempt + 1 == _ATTEMPTS or not await self._is_healthy():
                    raise ServerGone(f"{self.url}: {error!r}") from None
                await asyncio.sleep(_PAUSE_S)
        raise AssertionError("unreachable")

    async def _once(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async with self._http.request(method, f"{self.url}{path}", json=body) as response:
            status, content = response.status, _content(await response.text())
        if status == HTTPStatus.OK:
            return content if isinstance(content, dict) else {}
        message = _message(content)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and any(word in message for word in _DEAD_ENGINE):
            raise ServerGone(f"{self.url}: {message}")
        if status in _PASSING:
            raise aiohttp.ClientError(f"{status}: {message}")
        raise ValueError(f"vLLM server {self.url} refused {path} ({status}): {message}")

    async def _is_healthy(self) -> bool:
        if self._http.closed:
            return False
        try:
            async with self._http.get(f"{self.url}/health", timeout=_HEALTH) as response:
                return response.status == HTTPStatus.OK
        except (aiohttp.ClientError, TimeoutError):
            return False


def _sampled(answer: dict[str, Any], prompt: Sequence[int], url: str) -> Sampled:
    """Parse an answer. Raises ServerGone for an aborted turn, as sent by an engine that is shutting down."""
    choice = (answer.get("choices") or [{}])[0]
    ids, content = choice.get("token_ids") or [], (choice.get("logprobs") or {}).get("content") or []
    reason = choice.get("finish_reason")
    if not ids or len(content) != len(ids) or reason == "abort":
        raise ServerGone(
            f"{url}: sent an incomplete turn: {len(ids)} ids, {len(content)} log-probs, finish_reason {reason}"
        )
    before = answer.get("prompt_logprobs") or []
    return Sampled(
        ids,
        [token["logprob"] for token in content],
        [position[str(token)]["logprob"] for token, position in zip(prompt, before, strict=False) if position],
    )


def _content(text: str) -> Any:
    """Return a body as JSON if possible, else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _message(content: Any) -> str:
    try:
        return str(content["error"]["message"])
    except (KeyError, TypeError):
        return str(content)[:500]
