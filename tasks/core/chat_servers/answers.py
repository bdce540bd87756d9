"""Answers of a chat-completions server: a turn with its token counts, or a fault and whether it may pass.

Pure: status, headers and body in, a value or an exception out. Sources: OpenAI's API reference (chat completions, error
codes, rate limits) and RFC 9110 (Retry-After).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from tasks.core.config.broken_rules import broken_rules

PASSING = frozenset({408, 409, 429})
"""Statuses, besides all from 500 up, after which the vendor's client retries. Retrying is safe because a completion
changes nothing on the server; at worst it is paid for twice."""
NEVER_PASSING = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Error codes that come with status 429 but do not pass."""
KEY_REFUSED = frozenset({401, 403})
TOO_LARGE = frozenset({400, 413, 422})
OVERFLOW_CODES = frozenset({"context_length_exceeded", "string_above_max_length"})
OVERFLOW_WORDS = ("context length", "context window", "maximum context", "too many tokens", "prompt is too long")


class ChatApiError(RuntimeError):
    """The API cannot be used as configured, or stays unavailable; the message says what to do.

    It never contains the key.
    """


class PassingFault(Exception):  # noqa: N818 - the fault may pass
    """A retry of the request may succeed."""


class PromptTooLong(Exception):  # noqa: N818
    """The conversation has outgrown the model's context."""


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the tools that a request offered; whatever the model wrote."""

    id: str
    name: str
    arguments: str
    """JSON, unless the model wrote something else."""


@dataclass(frozen=True)
class ChatTurn:
    """An assistant turn and its token counts."""

    text: str
    complete: bool
    """False if the turn was cut at the maximum length."""
    model: str
    """The server's name for the model, which may be more specific than the requested name."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that the server had cached."""
    answer_tokens: int
    """Sampled tokens, including hidden reasoning."""
    calls: tuple[ToolCall, ...] = ()


def _or(default: Any) -> BeforeValidator:
    """Read null as `default`."""
    return BeforeValidator(lambda value: default if value is None else value)


def _text(content: Any) -> Any:
    """Return the text of a message's content, which may come in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else content


def _json(arguments: Any) -> Any:
    return json.dumps(arguments) if isinstance(arguments, dict) else "{}" if arguments is None else arguments


_Text = Annotated[str, _or("")]
_Count = Annotated[int | None, Field(ge=0)]


class _Function(BaseModel):
    name: str
    arguments: Annotated[str, BeforeValidator(_json)] = "{}"


class _ToolCall(BaseModel):
    id: _Text = ""
    function: _Function


class _Message(BaseModel):
    content: Annotated[str, BeforeValidator(_text)] = ""
    refusal: _Text = ""
    tool_calls: Annotated[list[_ToolCall], _or([])] = []


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Details(BaseModel):
    cached_tokens: Annotated[int, _or(0)] = 0


class _Usage(BaseModel):
    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_tokens_details: Annotated[_Details, _or({})] = _Details()


class _Completion(BaseModel):
    model: _Text = ""
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Annotated[_Usage, _or({})] = _Usage()


CHARACTERS_PER_TOKEN = 4
"""An estimate, for limits and for servers that count no tokens; OpenAI's own limits count characters, too."""


def read_answer(body: bytes, asked_characters: int = 0) -> ChatTurn:
    """Parse the body of a response with status 200 to a request of so many characters.

    Tokens that the server does not count are estimated. Raises PassingFault if the body is truncated or malformed,
    ChatApiError if it is a stream.
    """
    if body.lstrip().startswith(b"data:"):
        raise ChatApiError("the server answers by a stream, which it was not asked for")
    try:
        content = json.loads(body.decode("utf-8-sig", "replace"))
        whole = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")  # half a surrogate pair becomes "?"
        completion = _Completion.model_validate_json(whole)
    except ValidationError as error:
        said = _error(content)[0] or broken_rules(error, "body")[0]
        raise PassingFault(f"the answer is not a chat completion ({said})") from None
    except (ValueError, RecursionError) as error:
        raise PassingFault(f"the answer is not a chat completion ({error})") from None
    choice, usage = completion.choices[0], completion.usage
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls)
    text = choice.message.content or choice.message.refusal
    written = sum(len(call.name + call.arguments) for call in calls) + len(text)
    return ChatTurn(
        text=text,
        complete=choice.finish_reason != "length",
        model=completion.model,
        prompt_tokens=_counted(usage.prompt_tokens, asked_characters),
        cached_tokens=usage.prompt_tokens_details.cached_tokens,
        answer_tokens=_counted(usage.completion_tokens, written),
        calls=calls,
    )


def _counted(tokens: int | None, characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN) if tokens is None else tokens


def fault(status: int, body: Any) -> Exception:
    """Return the error behind a response with another status. `body` is its JSON, or None if it has none."""
    message, code = _error(body)
    text = f"status {status}" + (f": {message}" if message else "")
    if status in KEY_REFUSED:
        return ChatApiError(f"the server refused the key ({text})")
    if code in NEVER_PASSING:
        return ChatApiError(f"the account's quota is used up ({text})")
    if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return PassingFault(text)
    if status in TOO_LARGE and (code in OVERFLOW_CODES or any(word in message.lower() for word in OVERFLOW_WORDS)):
        return PromptTooLong(text)
    return ChatApiError(f"the server refused the request ({text})")


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or an HTTP date); None if absent."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        moment = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _error(body: Any) -> tuple[str, str]:
    """Return (message, code) of `{"error": {"message": ..., "code": ...}}`; servers leave out parts of it."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    if isinstance(error, str):
        return error[:300], ""
    if not isinstance(error, dict):
        return "", ""
    return str(error.get("message") or "")[:300], str(error.get("code") or error.get("type") or "")
