"""A client that pays for no answer twice."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.core.chat_servers.client import Call, ChatClient
from tasks.core.chat_servers.paid_answers import PaidAnswer, PaidAnswers, Spending, request_key
from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.interfaces.engine import GenerationRequest
from tasks.core.records.api_usage import ApiUsage


class PayingClient:
    """A `ChatClient` with the file of paid answers and what was spent. Used from one event loop.

    Raises ChatApiError when the environment holds no key, or the file cannot be used.
    """

    def __init__(self, config: ChatApiConfig, named: Callable[[str], str], knobs: str = "engine.chat_api") -> None:
        """Open it; `named` is the name under which the answers on a task are kept, `knobs` the section of `config`."""
        self._client = ChatClient(config, knobs=knobs)
        self._paid, self._named, self._base_url = PaidAnswers(), named, config.request.base_url
        self.spending = Spending(config.traffic)

    def call(self, request: GenerationRequest, tools: Sequence[Mapping[str, Any]] = ()) -> Call:
        """Prepare the request for a turn, without sending it."""
        return self._client.call(request.messages, request.sampling, request.seed, tools)

    async def answer(self, request: GenerationRequest, call: Call) -> tuple[PaidAnswer, bool]:
        """Return the answer, and whether an earlier attempt paid for it. Raises as `ChatClient.complete`."""
        key = request_key({"base_url": self._base_url, **call.body}, request)
        stored = await asyncio.to_thread(self._paid.find, key)
        if stored is not None:
            return stored, True
        paid = PaidAnswer(await self._client.complete(call), call.attempts)
        await asyncio.to_thread(self._paid.keep, key, self._named(request.task_id), paid)
        return paid, False

    def take_usage(self) -> ApiUsage:
        """Return the tokens used and money paid since the last call."""
        return self.spending.take()

    async def close(self) -> None:
        """Close the connections and the file."""
        await self._client.close()
        self._paid.close()
