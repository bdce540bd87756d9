"""A client that requests many turns at once from a chat-completions server, through the vendor's client.

The vendor's client does retries, back-off and `Retry-After` (openai 3: up to 8 s between attempts, or as long as the
server asks). Two hooks around every attempt add what it lacks: before, rate limits and a pause for all requests; after,
a check of the answer, because the vendor's client would accept any malformed answer, and would retry even when a quota
is used up. pyrate-limiter enforces the limits with a log of the last minute; the pause is ours, because the vendor's
client holds back only the request that was refused. `PayingClient` pays for no answer twice.
"""

import asyncio
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import httpx2
from openai import APIConnectionError, APIStatusError, APITimeoutError, AsyncOpenAI, Omit
from pyrate_limiter import Limiter, Rate

from tasks.core.chat_servers.answers import (
    CHARACTERS_PER_TOKEN,
    ChatApiError,
    ChatTurn,
    PassingFault,
    fault,
    read_answer,
    retry_after,
)
from tasks.core.chat_servers.paid_answers import PaidAnswer, PaidAnswers, Spending, request_key
from tasks.core.chat_servers.settings import ChatApiConfig
from tasks.core.interfaces.engine import GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Message
from tasks.core.records.timings import ApiUsage

MINUTE_S = 60.0
UNITS = 10_000
"""The log has an entry per unit: higher token limits are counted in units of several tokens, rounded up."""


class Pace:
    """Rate limits for the requests of one event loop."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests = None if requests_per_minute is None else _limiter(requests_per_minute)
        self._tokens_per_unit = math.ceil((tokens_per_minute or 1) / UNITS)
        self._most_units = (tokens_per_minute or 1) // self._tokens_per_unit
        self._tokens = None if tokens_per_minute is None else _limiter(self._most_units)
        self._next = asyncio.Lock()
        self._paused_until = float("-inf")

    async def begin(self, tokens: int) -> None:
        """Wait until a request of `tokens` tokens may begin, after all earlier requests.

        A request larger than the limit may begin when no other request began in the last minute.
        """
        async with self._next:
            if self._requests is not None:
                await self._requests.try_acquire_async()
            if self._tokens is not None:
                units = math.ceil(tokens / self._tokens_per_unit)
                await self._tokens.try_acquire_async(weight=min(units, self._most_units))
            while (wait := self._paused_until - time.monotonic()) > 0:
                await asyncio.sleep(wait)

    def pause(self, seconds: float) -> None:
        """Let no request begin for this many seconds."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def close(self) -> None:
        """End the threads that clear the logs."""
        for limiter in (self._requests, self._tokens):
            if limiter is not None:
                limiter.close()


def _limiter(count: int) -> Limiter:
    return Limiter(Rate(count, int(MINUTE_S * 1000)), buffer_ms=1)


ATTEMPTS = 20
"""Times that one request is sent at most: pauses grow between them, so that the last ones are minutes away."""
LONGEST_SILENCE_S = 300.0
"""Longest silence of the server: a model that reasons answers late."""
LONGEST_WAIT_S = 120.0
"""Longest pause that a server may ask for. The vendor's client heeds no longer one, and a server that asks for more has
no quota left: the run ends instead of waiting."""

ChatMessage = Message | Mapping[str, Any]
"""A message of the API: beside role and content it may have tool calls, or the id of the call that it answers."""


@dataclass(eq=False)
class Call:
    """A request for one turn. Belongs to the event loop's thread."""

    body: dict[str, Any]
    tokens: int
    """Estimated tokens of prompt and answer."""
    attempts: int = 0
    turn: ChatTurn | ChatApiError | None = None
    """The answer, or why a body of status 200 can never be one."""
    wait_s: float | None = None
    """The pause that the server requested after the last attempt, if any."""
    in_flight: bool = False
    """A request has been sent and may be paid for."""
    abandoned: bool = False
    task: "asyncio.Task[Any] | None" = None

    def abandon(self) -> None:
        """Send nothing more, because nobody waits for the answer; but still take an answer that is under way."""
        self.abandoned = True
        if self.task is not None and not self.in_flight:
            self.task.cancel()

    def require_interest(self) -> None:
        """Raise CancelledError if the call is abandoned."""
        if self.abandoned:
            raise asyncio.CancelledError


_call: ContextVar[Call] = ContextVar("call")


class ChatClient:
    """A client for one server and model, used from one event loop.

    Raises ChatApiError if the environment has no key.
    """

    def __init__(
        self, config: ChatApiConfig, environment: Mapping[str, str] = os.environ, knobs: str = "engine.chat_api"
    ) -> None:
        """Open the client; `knobs` is the section of params.yaml that `config` is, for messages."""
        self._request, traffic, self._knobs = config.request, config.traffic, knobs
        self._traffic, self._key = traffic, _key(traffic.key_variable, environment, knobs)
        self._pace = Pace(traffic.requests_per_minute, traffic.tokens_per_minute)
        self._headers: Mapping[str, str | Omit] = {} if self._key else {"Authorization": Omit()}
        self._slots = asyncio.Semaphore(traffic.concurrency)
        self._vendor = AsyncOpenAI(
            api_key=self._key or "none",
            base_url=config.request.base_url,
            max_retries=ATTEMPTS - 1,
            timeout=LONGEST_SILENCE_S,
            http_client=httpx2.AsyncClient(
                limits=httpx2.Limits(max_connections=traffic.concurrency),
                event_hooks={"request": [self._before_attempt], "response": [self._after_attempt]},
            ),
        )

    def call(
        self,
        messages: Sequence[ChatMessage],
        sampling: SamplingSettings,
        seed: int,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Call:
        """Prepare the request for a turn, without sending it; `tools` are schemas of what the model may call."""
        asked = self._request
        body = {"model": asked.model, "messages": list(messages), asked.max_tokens_field: sampling.max_tokens}
        if tools:
            body["tools"] = list(tools)
        if asked.send_temperature:
            body["temperature"] = sampling.temperature
        if sampling.top_k:
            body["extra_body"] = {
                "top_k": sampling.top_k
            }  # OpenAI's own API has none, so the client knows no such name
        if sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        if asked.send_seed:
            body["seed"] = seed
        prompt = len(json.dumps([*messages, *tools], ensure_ascii=False).encode())
        return Call(body, prompt // CHARACTERS_PER_TOKEN + sampling.max_tokens)

    async def complete(self, call: Call) -> ChatTurn:
        """Request the assistant turn; `call.attempts` then holds the number of attempts.

        Raises PromptTooLong; ChatApiError for faults that do not pass, or have not passed after all attempts;
        CancelledError if the call is abandoned before an answer arrives.
        """
        call.task = asyncio.current_task()
        call.require_interest()
        _call.set(call)
        async with self._slots:
            try:
                await self._vendor.chat.completions.with_raw_response.create(**call.body, extra_headers=self._headers)
            except APIStatusError as error:
                raise self._explained(fault(error.status_code, _json(error.response)), call) from None
            except APITimeoutError:
                raise self._gave_up(f"no answer within {LONGEST_SILENCE_S:g} s", call) from None
            except APIConnectionError as error:
                raise self._gave_up(_cause(error), call) from None
        assert call.turn is not None
        if isinstance(call.turn, ChatApiError):
            raise self._explained(call.turn, call)
        return call.turn

    async def close(self) -> None:
        await self._vendor.close()
        self._pace.close()

    async def _before_attempt(self, request: httpx2.Request) -> None:
        call = _call.get()
        call.in_flight = False
        call.require_interest()
        await self._pace.begin(call.tokens)
        call.in_flight, call.wait_s = True, None
        call.attempts += 1

    async def _after_attempt(self, response: httpx2.Response) -> None:
        """Take the answer, or signal a retry to the client: by a RequestError, or by the header `x-should-retry`."""
        call = _call.get()
        await response.aread()
        if response.status_code == HTTPStatus.OK:
            try:
                call.turn = read_answer(response.content, len(response.request.content))
            except ChatApiError as unreadable:
                call.turn = unreadable
            except PassingFault as malformed:
                raise httpx2.DecodingError(str(malformed), request=response.request) from None
            return
        call.in_flight, call.wait_s = False, retry_after(response.headers, datetime.now(UTC))
        passing = isinstance(fault(response.status_code, _json(response)), PassingFault)
        if not passing or (call.wait_s or 0.0) > LONGEST_WAIT_S:
            response.headers["x-should-retry"] = "false"
        elif call.wait_s is not None:
            self._pace.pause(call.wait_s)

    def _explained(self, error: Exception, call: Call) -> Exception:
        """Return the same error with the model, its address and a remedy, and without the key."""
        if isinstance(error, PassingFault):
            return self._gave_up(str(error), call)
        message = self._without_key(str(error))
        if isinstance(error, ChatApiError):
            message = f"{self._place}: {message}; check {self._traffic.key_variable} and {self._knobs}.request"
        return type(error)(message)

    def _gave_up(self, last: str, call: Call) -> ChatApiError:
        asked = f", which asks to wait {call.wait_s:.0f} s" if call.wait_s else ""
        return ChatApiError(
            f"{self._place}: gave up after {call.attempts} attempts; the last error: {self._without_key(last)}{asked}. "
            f"Run again later, which requests only the missing answers, or raise the limits in {self._knobs}.traffic"
        )

    @property
    def _place(self) -> str:
        return f"{self._request.model} at {self._request.base_url}"

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(key)") if self._key else text


def _cause(error: APIConnectionError) -> str:
    """Return the fault as the HTTP client describes it."""
    cause = error.__cause__
    if isinstance(cause, httpx2.DecodingError):
        return str(cause)
    return f"the connection failed ({cause or type(cause).__name__})"


def _key(variable: str | None, environment: Mapping[str, str], knobs: str) -> str:
    if variable is None:
        return ""
    key = environment.get(variable, "").strip()
    if not key:
        raise ChatApiError(
            f"the environment variable {variable} holds no key: export it, or name another variable in "
            f"{knobs}.traffic.key_variable (null for a server without keys)"
        )
    if not (key.isascii() and key.isprintable()):
        raise ChatApiError(
            f"the environment variable {variable} holds no key: HTTP headers do not allow its characters"
        )
    return key


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


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
