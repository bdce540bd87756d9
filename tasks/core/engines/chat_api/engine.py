"""An engine for a model behind an OpenAI-compatible API: to score models that cannot be trained here.

Such a server takes chat messages and returns text. Turns are recorded in tokens of the pipeline's own tokenizer, so
that the same tables, metrics and viewer work for every policy. These are not the tokens that the model sampled, and
their log-probs are unknown: the column holds 0. Nothing may train on that, and nothing does: params.yaml allows this
engine only for runs without iterations.
"""

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tasks.core.chat_servers.answers import PromptTooLong
from tasks.core.chat_servers.client import Call, PayingClient
from tasks.core.chat_servers.paid_answers import PaidAnswer
from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.interfaces.engine import ContextOverflow, Generation, GenerationRequest
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.processes.event_loop import EventLoopThread
from tasks.core.records.timings import ApiUsage

CONTEXT_LENGTH = 2**20
"""In our tokens; the server knows the model's own limit and reports when it is reached."""
LONGEST_WAIT_S = 0.1
"""Longest wait of one `collect`: while it waits, nobody handles what worlds answer to other conversations."""
FAREWELL_S = 10.0
"""How long `close` waits for answers under way: they are paid for, and the next attempt will find them."""


@dataclass(frozen=True)
class _PendingTurn:
    """A requested turn; its result says whether an earlier attempt already paid for it."""

    call: Call
    result: "Future[tuple[PaidAnswer, bool]]"


class ChatApiEngine:
    """An `Engine` that is also `Metered` (see `tasks.core.interfaces.engine`). Requests must carry their messages."""

    name = "chat_api"
    context_length = CONTEXT_LENGTH

    def __init__(self, config: ChatApiConfig, chat: ChatFormat) -> None:
        """Open the client and the file of paid answers.

        Raises ChatApiError when the environment holds no key, or the file cannot be used.
        """
        self.version = f"{config.request.model} at {urlsplit(config.request.base_url).netloc}"
        self._chat, self._client = chat, PayingClient(config, config.request.named)
        self._loop = EventLoopThread("chat_api")
        self._asked: dict[str, _PendingTurn] = {}
        self._under_way: set[Future[tuple[PaidAnswer, bool]]] = set()
        """Includes requests of released conversations."""

    def load_adapter(self, path: Path | None) -> None:
        """Forget all conversations. No checkpoint is read (see the module's docstring)."""
        for sequence_id in list(self._asked):
            self.release(sequence_id)

    def submit(self, request: GenerationRequest) -> None:
        """Request one turn. Raises ContextOverflow, or ValueError for a request without messages."""
        if not request.messages:
            raise ValueError(f"{request.sequence_id}: a request to a chat API needs the conversation's messages")
        if len(request.prompt_ids) >= self.context_length:
            raise ContextOverflow(request.sequence_id, f"a prompt of {len(request.prompt_ids)} tokens")
        call = self._client.call(request)
        result = self._loop.submit(self._client.answer(request, call))
        self._asked[request.sequence_id] = _PendingTurn(call, result)
        self._under_way.add(result)
        result.add_done_callback(self._under_way.discard)

    def collect(self) -> list[Generation]:
        """Return the answered turns, in the order of their requests; wait briefly for the first.

        Raises ChatApiError after abandoning all requests under way.
        """
        if not self._asked:
            return []
        done, _ = wait([asked.result for asked in self._asked.values()], LONGEST_WAIT_S, FIRST_COMPLETED)
        try:
            return [self._turn(name) for name, asked in list(self._asked.items()) if asked.result in done]
        except Exception as error:
            self.load_adapter(None)
            error.add_note(f"so far: {self._client.spending.said()}, kept for the next run")
            raise

    def release(self, sequence_id: str) -> None:
        """Forget a conversation. A request already sent is not waited for, but may be paid for."""
        asked = self._asked.pop(sequence_id, None)
        if asked is not None:
            self._loop.call(asked.call.abandon)

    def take_usage(self) -> ApiUsage:
        """Return the tokens used and money paid since the last call."""
        return self._client.take_usage()

    def close(self) -> None:
        """Send no more requests, and wait briefly for answers under way. Idempotent."""
        if self._loop.is_closed:
            return
        self.load_adapter(None)
        _, left = wait(set(self._under_way), FAREWELL_S)
        for result in left:
            result.cancel()
        self._loop.run(self._client.close())
        self._loop.close()

    def _turn(self, name: str) -> Generation:
        asked = self._asked.pop(name)
        try:
            paid, earlier = asked.result.result()
        except PromptTooLong:
            return Generation(name, (), (), "context")
        self._client.spending.add(paid, earlier)
        answer = paid.answer
        ids = self._chat.turn_ids(answer.text)
        complete = answer.complete or len(ids) == 1
        kept = tuple(ids if complete else ids[:-1])
        return Generation(name, kept, (0.0,) * len(kept), "stop" if complete else "length")
