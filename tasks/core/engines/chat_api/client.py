"""Asks a chat-completions server for turns, from many threads, and waits and asks again where that may help."""

import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx

from tasks.core.config.chat_api import ChatApiConfig
from tasks.core.engines.chat_api.answers import ChatApiError, ChatTurn, PassingFault, fault, read_answer
from tasks.core.engines.chat_api.pace import Pace, Ticket, backoff
from tasks.core.interfaces.engine import SamplingSettings
from tasks.core.interfaces.world import Message

BYTES_PER_TOKEN = 4
"""For the estimate that the token limit goes by until the server has counted."""


class Abandoned(Exception):  # noqa: N818
    """Nobody waits for the answer any more."""


class ChatClient:
    """One server and model. Thread-safe. Raises ChatApiError when the environment holds no key."""

    def __init__(self, config: ChatApiConfig, environment: Mapping[str, str] = os.environ) -> None:
        self._request, self._traffic = config.request, config.traffic
        self._key = _key(config.traffic.key_variable, environment)
        self._pace = Pace(config.traffic.requests_per_minute, config.traffic.tokens_per_minute)
        self._lock = threading.Lock()
        self._jitter = random.Random()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=config.traffic.concurrency)
        self._http = httpx.Client(headers=headers, limits=limits, timeout=httpx.Timeout(config.traffic.timeout_s))

    def answer(
        self, messages: Sequence[Message], sampling: SamplingSettings, seed: int, abandoned: threading.Event
    ) -> tuple[ChatTurn, int]:
        """The next assistant turn, and how many attempts it took.

        Raises PromptTooLong, Abandoned (`abandoned` was set meanwhile), and ChatApiError for what will not pass, or has
        not after all attempts.
        """
        body = self.body(messages, sampling, seed)
        tokens = sum(len(message["content"].encode()) for message in messages) // BYTES_PER_TOKEN + sampling.max_tokens
        for attempt in range(self._traffic.attempts):
            ticket = self._wait_for_turn(tokens, abandoned)
            try:
                answer = self._post(body)
            except PassingFault as fault:
                self._take_in(fault, attempt, abandoned)
            else:
                ticket.tokens = answer.prompt_tokens + answer.answer_tokens
                return answer, attempt + 1
        raise AssertionError("the last attempt raises")

    def body(self, messages: Sequence[Message], sampling: SamplingSettings, seed: int) -> dict[str, Any]:
        """What is posted for a turn."""
        asked = self._request
        body = {"model": asked.model, "messages": list(messages), asked.max_tokens_field: sampling.max_tokens}
        if asked.send_temperature:
            body["temperature"] = sampling.temperature
        if asked.send_seed:
            body["seed"] = seed
        return body

    def close(self) -> None:
        self._http.close()

    def _post(self, body: dict[str, Any]) -> ChatTurn:
        try:
            response = self._http.post(f"{self._request.base_url}/chat/completions", json=body)
        except httpx.TimeoutException:
            raise PassingFault(f"no answer within {self._traffic.timeout_s:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise PassingFault(
                f"the connection failed ({self._without_key(str(error) or type(error).__name__)})"
            ) from None
        if response.status_code == httpx.codes.OK:
            return read_answer(response.content)
        found = fault(response.status_code, response.headers, _json(response), datetime.now(UTC))
        raise self._explained(found)

    def _explained(self, found: Exception) -> Exception:
        """The same kind of fault, with the place and what to do, and without the key."""
        said = self._without_key(str(found))
        if isinstance(found, PassingFault):
            return PassingFault(said, found.wait_s)
        if isinstance(found, ChatApiError):
            said = f"{self._place}: {said}; check {self._traffic.key_variable} and collection.chat_api.request"
        return type(found)(said)

    def _wait_for_turn(self, tokens: int, abandoned: threading.Event) -> Ticket:
        while True:
            with self._lock:
                found = self._pace.begin(time.monotonic(), tokens)
            if isinstance(found, Ticket):
                if abandoned.is_set():
                    raise Abandoned
                return found
            _sleep(found, abandoned)

    def _take_in(self, found: PassingFault, attempt: int, abandoned: threading.Event) -> None:
        """Wait before the next attempt: all threads, if the server asked for it. Raises ChatApiError after the last."""
        last = attempt + 1 == self._traffic.attempts
        if last or (found.wait_s or 0.0) > self._traffic.longest_wait_s:
            asked = f", which asks to wait {found.wait_s:.0f} s" if found.wait_s else ""
            raise ChatApiError(
                f"{self._place}: gave up after {attempt + 1} attempts; the last one: {found}{asked}. Run again "
                "later, which asks only for what is missing, or allow more (collection.chat_api.traffic)"
            ) from None
        if found.wait_s is not None:
            with self._lock:
                self._pace.pause(time.monotonic() + found.wait_s)
        else:
            _sleep(backoff(attempt, self._jitter), abandoned)

    @property
    def _place(self) -> str:
        return f"{self._request.model} at {self._request.base_url}"

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(key)") if self._key else text


def _key(variable: str | None, environment: Mapping[str, str]) -> str:
    if variable is None:
        return ""
    key = environment.get(variable, "").strip()
    if not key:
        raise ChatApiError(
            f"the environment variable {variable} holds no key: export it, or name another one (or null, for a server "
            "that wants none) in collection.chat_api.traffic.key_variable"
        )
    if not (key.isascii() and key.isprintable()):
        raise ChatApiError(
            f"the environment variable {variable} holds no key: it has characters that no header may have"
        )
    return key


def _sleep(seconds: float, abandoned: threading.Event) -> None:
    if abandoned.wait(seconds):
        raise Abandoned


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
