"""Usage of an API by turns: a document, and part of others. Units are those of documents.py."""

from collections.abc import Iterable

from tasks.core.records.documents import Count, Document, Positive


class ApiUsage(Document):
    """Tokens and money that turns behind an API took; each counts once, those of a failed attempt too."""

    models: tuple[str, ...]
    """As the server named them."""
    answers: Count
    retries: Count
    """Requests beyond one per answer."""
    prompt_tokens: Count
    cached_tokens: Count
    """Those of the prompt tokens that the server had cached."""
    answer_tokens: Count
    """Sampled ones, hidden reasoning included."""
    cost_usd: Positive
    """At the prices that params.yaml held when it was played."""


def total_usage(parts: Iterable[ApiUsage | None]) -> ApiUsage | None:
    """Return the sum of all paid usage; None if there is none."""
    paid = [part for part in parts if part is not None]
    if not paid:
        return None
    counts = ("answers", "retries", "prompt_tokens", "cached_tokens", "answer_tokens", "cost_usd")
    sums = {name: sum(getattr(part, name) for part in paid) for name in counts}
    return ApiUsage(models=tuple(sorted({model for part in paid for model in part.models})), **sums)
