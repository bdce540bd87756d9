"""The OpenAI API's own form: a request read field by field, the answer whole or as a stream, and errors.

What the pipeline decides (`SAMPLING`) and what changes no answer (`IDLE`) is accepted; any other field that cannot be
honoured is an error that names it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.core.interfaces.asking import Ask, Refusal, Said
from tasks.core.tool_calls.chat_messages import checked

MODEL = "policy"
SAMPLING = {"temperature", "top_p", "top_k", "min_p", "seed"} | {
    f"{name}_penalty" for name in ("frequency", "presence", "repetition")
}
IDLE = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "reasoning_effort"}
ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "logit_bias": ({},),
    "echo": (False,),
}
"""Values of fields that are honoured because they ask for nothing."""


class BadRequest(Exception):  # noqa: N818
    """A request without an answer."""

    def __init__(self, status: int, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.status, self.refusal = status, refusal


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: Literal["text", "input_text", "output_text"]
    text: str


class _Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _Call(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: _Function


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the message with text as its content. Raises ValueError."""
        message = self.model_dump(exclude_none=True)
        message["role"] = "system" if self.role == "developer" else self.role
        if isinstance(self.content, list):
            message["content"] = "\n".join(part.text for part in self.content)
        return checked({name: value for name, value in message.items() if value != []})


class _StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """A request's fields that are honoured."""

    model_config = ConfigDict(extra="allow")

    messages: list[_Message] = Field(min_length=1)
    model: str = MODEL
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def ask(self) -> Ask:
        """Return the request as the agent loop takes it. Raises BadRequest."""
        messages = []
        for index, message in enumerate(self.messages):
            try:
                messages.append(message.plain())
            except ValueError as error:
                raise refused(f"a call's arguments: {error}", f"messages.{index}.tool_calls") from None
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        tools = () if self.tool_choice == "none" else tuple(self.tools or ())
        return Ask(tuple(messages), tools, tuple(filter(None, stop)), min(limits, default=None))


def read_request(body: bytes) -> ChatRequest:
    """Return a checked request. Raises BadRequest naming the field that cannot be honoured."""
    try:
        request = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        rule = error.errors()[0]
        named = takewhile(lambda part: part != "str" and "[" not in str(part), rule["loc"])  # what follows is a type
        field = ".".join(map(str, named))
        raise refused(rule["msg"], field or None) from None
    for name, value in (request.model_extra or {}).items():
        if value is None or name in SAMPLING | IDLE or value in ONLY.get(name, ()):
            continue
        raise refused(f"{name}: {json.dumps(value)[:100]} cannot be honoured here", name)
    return request


def refused(message: str, field: str | None, status: int = 400, code: str | None = None) -> BadRequest:
    """Return the error of a request, in words and by its field."""
    return BadRequest(status, Refusal(message, field, code))


def error_body(refusal: Refusal) -> dict[str, Any]:
    """Return an error as the API has it."""
    fields = {"message": refusal.message, "type": "invalid_request_error", "param": refusal.field, "code": refusal.code}
    return {"error": fields}


def models_body() -> dict[str, Any]:
    """Return the list of models: the policy."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "loopline"}]}


@dataclass(frozen=True)
class Answer:
    """An answer to a request. Times and ids follow from its content: the same episode gives the same bytes."""

    request: ChatRequest
    said: Said
    number: int
    """Which answer of the episode it is."""

    def body(self) -> dict[str, Any]:
        """Return it whole."""
        choice = {"index": 0, "message": {"content": None, **self.said.message}, "logprobs": None}
        return self._with("chat.completion", [choice | {"finish_reason": self.said.finish}]) | {"usage": self._usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Return it as a stream has it: the role, the thought, the text, each call, and the end."""
        message = self.said.message
        yield self._delta({"role": "assistant", "content": ""})
        for name in ("reasoning_content", "content"):
            if message.get(name):
                yield self._delta({name: message[name]})
        for index, call in enumerate(message.get("tool_calls", ())):
            yield self._delta({"tool_calls": [{"index": index, **call}]})
        yield self._delta({}, self.said.finish)
        if self.request.stream_options and self.request.stream_options.include_usage:
            yield self._with("chat.completion.chunk", []) | {"usage": self._usage}

    def _delta(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._with("chat.completion.chunk", [choice])

    def _with(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        name = f"chatcmpl-{self.number}"
        return {"id": name, "object": kind, "created": 0, "model": self.request.model, "choices": choices}

    @property
    def _usage(self) -> dict[str, int]:
        prompt, sampled = self.said.prompt_tokens, self.said.sampled_tokens
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
