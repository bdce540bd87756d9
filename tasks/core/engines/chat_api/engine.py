"""A model behind an OpenAI-compatible API as an engine: for scoring models that cannot be trained here.

Such a server takes chat messages and gives text. Ours are recorded in the tokens of the pipeline's own tokenizer, so
that the same tables, metrics and viewer hold for every policy; these are not the tokens that the model sampled, and no
log-prob of them is known: the column holds 0. Nothing may train on that, and nothing does: params.yaml allows this
engine only for runs without iterations.
"""

import asyncio
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tasks.core.config.chat_api import ChatApiConfig
from tasks.core.engines.chat_api.answers import PromptTooLong
from tasks.core.engines.chat_api.client import Call, ChatClient
from tasks.core.engines.chat_api.paid_answers import PaidAnswer, PaidAnswers, request_key
from tasks.core.engines.chat_api.spending import Spending
from tasks.core.interfaces.engine import ContextOverflow, Generation, GenerationRequest
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.processes.event_loop import EventLoopThread
from tasks.core.records.scores import ApiUsage

CONTEXT_LENGTH = 2**20
"""In our tokens; the server knows the model's own limit, and says when it is reached."""
LONGEST_WAIT_S = 0.1
"""Longest wait of one `collect`: meanwhile nobody takes up what the world answers to other conversations."""
FAREWELL_S = 10.0
"""Time for which `close` waits for answers under way: they are paid for, and the next attempt finds them."""


@dataclass(frozen=True)
class _PendingTurn:
    """A turn that is asked for; its result says whether an earlier attempt had paid for it."""

    call: Call
    result: "Future[tuple[PaidAnswer, bool]]"


class ChatApiEngine:
    """See `tasks.core.interfaces.engine.Engine`, and `Metered`. Requests must carry their messages."""

    name = "chat_api"
    context_length = CONTEXT_LENGTH

    def __init__(self, config: ChatApiConfig, chat: ChatFormat) -> None:
        """Raises ChatApiError when the environment holds no key, or the file of paid answers cannot be used."""
        self.version = f"{config.request.model} at {urlsplit(config.request.base_url).netloc}"
        self._chat, self._client = chat, ChatClient(config)
        self._spending, self._paid = Spending(config.traffic), PaidAnswers()
        self._base_url = config.request.base_url
        self._loop = EventLoopThread("chat_api")
        self._asked: dict[str, _PendingTurn] = {}
        self._under_way: set[Future[tuple[PaidAnswer, bool]]] = set()
        """Those of conversations that were released too."""

    def load_adapter(self, path: Path | None) -> None:
        """Forget all conversations. No checkpoint is read: see above."""
        for sequence_id in list(self._asked):
            self.release(sequence_id)

    def submit(self, request: GenerationRequest) -> None:
        """Ask for one turn. Raises ContextOverflow, or ValueError for a request without messages."""
        if not request.messages:
            raise ValueError(f"{request.sequence_id}: a request to a chat API needs the conversation's messages")
        if len(request.prompt_ids) >= self.context_length:
            raise ContextOverflow(request.sequence_id, f"a prompt of {len(request.prompt_ids)} tokens")
        call = self._client.call(request.messages, request.sampling, request.seed)
        result = self._loop.submit(self._answer(request, call))
        self._asked[request.sequence_id] = _PendingTurn(call, result)
        self._under_way.add(result)
        result.add_done_callback(self._under_way.discard)

    def collect(self) -> list[Generation]:
        """The turns that are answered, in the order in which they were asked for; waits a little for one.

        Raises ChatApiError; the requests that are under way are then abandoned.
        """
        if not self._asked:
            return []
        done, _ = wait([asked.result for asked in self._asked.values()], LONGEST_WAIT_S, FIRST_COMPLETED)
        try:
            return [self._turn(name) for name, asked in list(self._asked.items()) if asked.result in done]
        except Exception as error:
            self.load_adapter(None)
            error.add_note(f"so far: {self._spending.said()}, kept for the next run")
            raise

    def release(self, sequence_id: str) -> None:
        """Forget a conversation; a request that has been sent is not waited for, but may be paid for."""
        asked = self._asked.pop(sequence_id, None)
        if asked is not None:
            self._loop.call(asked.call.abandon)

    def take_usage(self) -> ApiUsage:
        """Tokens used and money paid since the last call."""
        return self._spending.take()

    def close(self) -> None:
        """Ask for nothing more, and wait a little for the answers under way. Idempotent."""
        if self._loop.is_closed:
            return
        self.load_adapter(None)
        _, left = wait(set(self._under_way), FAREWELL_S)
        for result in left:
            result.cancel()
        self._loop.run(self._client.close())
        self._loop.close()
        self._paid.close()

    async def _answer(self, request: GenerationRequest, call: Call) -> tuple[PaidAnswer, bool]:
        """The turn, and whether an earlier attempt had paid for it."""
        key = request_key({"base_url": self._base_url, **call.body}, request)
        found = await asyncio.to_thread(self._paid.find, key)
        if found is not None:
            return found, True
        paid = PaidAnswer(await self._client.complete(call), call.attempts)
        await asyncio.to_thread(self._paid.keep, key, request.task_id, paid)
        return paid, False

    def _turn(self, name: str) -> Generation:
        asked = self._asked.pop(name)
        try:
            paid, earlier = asked.result.result()
        except PromptTooLong:
            return Generation(name, (), (), "context")
        self._spending.add(paid, earlier)
        answer = paid.answer
        ids = self._chat.turn_ids(answer.text)
        complete = answer.complete or len(ids) == 1
        kept = tuple(ids if complete else ids[:-1])
        return Generation(name, kept, (0.0,) * len(kept), "stop" if complete else "length")
