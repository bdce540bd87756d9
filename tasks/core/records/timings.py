"""The documents of what play took: a collection's wall clock, and usage of an API. Units are those of documents.py."""

import json
from collections.abc import Iterable

from pydantic import Field, JsonValue, field_validator

from tasks.core.records.documents import Count, Document, OnlyWhereGiven, Positive


class Timings(Document):
    """timings.json: the wall-clock figures of one collection.

    How far a rollout came before early stop gave it up depends on the clock, and so do the counts of what was played.
    """

    wall_s: Positive
    engine_s: Positive
    """In the engine."""
    waiting_s: Positive
    """Blocked on the world."""
    world_s: Positive
    """In the world, summed over its threads."""
    generated_tokens: Count
    tokens_per_s: Positive
    rollouts: Count
    end_reasons: dict[str, Count]
    """Rollouts by `end_reason`."""
    world_retries: Count
    """Rollouts that were played again because of a world fault."""
    deliveries: OnlyWhereGiven[list[dict[str, JsonValue]]] = None
    """Proofs of the policy's delivery to servers (tasks/core/engines/vllm/delivery.py)."""
    clocks: dict[str, list[Positive]] = Field(default_factory=dict)
    """When each rollout ("task#index") was opened and its turns were answered, seconds since the epoch."""
    world_faults: dict[str, Count] = Field(default_factory=dict)
    """How often the world broke, by what it said: the most frequent texts."""

    @field_validator("deliveries")
    @classmethod
    def _are_finite(cls, deliveries: list[dict[str, JsonValue]] | None) -> list[dict[str, JsonValue]] | None:
        try:
            json.dumps(deliveries, allow_nan=False)
        except ValueError:
            raise ValueError("NaN and infinity are not JSON") from None
        return deliveries

    @property
    def most_frequent_fault(self) -> str:
        """The end of an error's message: "; most often (n times): ...", or "" where the world never broke."""
        fault = max(self.world_faults, key=lambda text: self.world_faults[text], default=None)
        return "" if fault is None else f"; most often ({self.world_faults[fault]} times): {fault}"


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
