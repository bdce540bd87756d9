"""The document of a collection's wall-clock figures. Units are those of documents.py."""

import json

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
