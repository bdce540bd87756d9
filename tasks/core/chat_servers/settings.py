"""The `engine.chat_api` section of params.yaml: a model behind an OpenAI-compatible API. Scoring only.

`request` decides what is answered, so a change of it plays again. `traffic` decides how fast and at what price, and
changes no score. The key is in neither: only the name of the environment variable that holds it.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from tasks.core.config.section import UNVERSIONED, Section

MILLION = 1e6
_NEWER_NAMES = ("openai.com", "openai.azure.com")
"""Hosts that call the longest turn max_completion_tokens."""


class ChatRequest(Section):
    """The model that is asked, and how: POST {base_url}/chat/completions."""

    constants: ClassVar[Mapping[str, str]] = {
        "max_tokens_field": "max_completion_tokens for OpenAI and Azure, max_tokens for other servers"
    }

    base_url: str = "https://api.openai.com/v1"
    """Address of the API, to which /chat/completions is added."""
    model: str = Field("gpt-4o-2024-11-20", min_length=1)
    """The model that is asked. A dated snapshot where the provider has one: a bare name may change its meaning."""
    send_temperature: bool = True
    """Send the temperature. False for models that refuse it (o1)."""
    send_seed: bool = True
    """Send a seed with each turn. False for servers that refuse it."""

    @property
    def max_tokens_field(self) -> str:
        """The server's name for the longest turn: OpenAI's models refuse the older one, which other servers take."""
        host = urlsplit(self.base_url).hostname or ""
        return "max_completion_tokens" if host.endswith(_NEWER_NAMES) else "max_tokens"

    def named(self, task_id: str) -> str:
        """Return the name under which the answers of this model on a task are kept: other models' are theirs."""
        return f"{self.model} at {self.base_url}: {task_id}"

    @field_validator("base_url")
    @classmethod
    def _is_a_plain_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected http://... or https://...")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("no user, password or query in the URL: the key comes from an environment variable")
        return value.rstrip("/")


class Traffic(Section):
    """Rate limits, retries and prices."""

    constants: ClassVar[Mapping[str, str]] = {"longest_wait_s": "120", "attempts": "20", "timeout_s": "300"}

    key_variable: str | None = Field("OPENAI_API_KEY", pattern=r"^[A-Z_][A-Z0-9_]*$")
    """Environment variable that holds the key. null: a server that wants none."""
    concurrency: int = Field(16, ge=1)
    """Requests under way at once."""
    requests_per_minute: int | None = Field(None, ge=1)
    """Most requests a minute. null: no limit of ours, only the server's."""
    tokens_per_minute: int | None = Field(None, ge=1)
    """Most tokens a minute, prompts and answers together. null: no limit of ours, only the server's."""
    prompt_price: float = Field(0.0, ge=0)
    """US dollars per million prompt tokens."""
    cached_price: float | None = Field(None, ge=0)
    """US dollars per million cached prompt tokens. null: as `prompt_price`."""
    answer_price: float = Field(0.0, ge=0)
    """US dollars per million sampled tokens, hidden reasoning included."""

    def cost_usd(self, prompt: int, cached: int, sampled: int) -> float:
        """Return the US dollars for these numbers of prompt tokens, cached prompt tokens and sampled tokens."""
        cached_price = self.prompt_price if self.cached_price is None else self.cached_price
        return (prompt * self.prompt_price + cached * cached_price + sampled * self.answer_price) / MILLION


class ChatApiConfig(Section):
    """One model behind an API."""

    request: ChatRequest = ChatRequest()
    """The request. A change of it plays again."""
    traffic: Annotated[Traffic, UNVERSIONED] = Traffic()
    """How fast and at what price. A change of it changes no score."""
