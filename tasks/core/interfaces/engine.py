"""The contract between the agent loop and an engine, which samples tokens.

Why this layer exists: the learner must train on exactly the sampled ids. So an engine that trains never sees text: it
takes the ids of a whole conversation so far and returns the ids of one assistant turn with their log-probs. Requests
carry the same conversation as messages too, for models behind a chat API, which can only be scored. An engine may keep
the key-value cache of a sequence between turns; it must then check that the new prompt extends the cached ids.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

from tasks.core.interfaces.world import Message
from tasks.core.records.timings import ApiUsage

StopReason = Literal["stop", "length", "context"]
"""A stop id, the longest turn, or a context that only the server knew to be full: then the turn has no ids."""


@dataclass(frozen=True)
class SamplingSettings:
    """Settings for sampling one assistant turn."""

    temperature: float
    """0 means greedy. Log-probs are those of the distribution sampled from (at this temperature); if greedy, at 1."""
    max_tokens: int
    """Longest turn in tokens, including the stop token."""
    stop_ids: tuple[int, ...]
    """Sampling ends after one of these ids; it is part of the returned ids. The first is the template's end of turn."""
    top_k: int = 0
    """Sample among this many likeliest tokens; 0: among all. Never set for training, nor is `top_p`."""
    top_p: float = 1.0
    """Sample among the likeliest tokens that together have this share of the probability, after `top_k`."""


@dataclass(frozen=True)
class GenerationRequest:
    """One assistant turn to sample."""

    sequence_id: str
    """Name of the conversation; the next turn of the same conversation carries the same id."""
    prompt_ids: Sequence[int]
    """All ids so far, not only the new ids."""
    sampling: SamplingSettings
    seed: int
    """Seed of this turn alone: the same seed, prompt, weights and batch schedule give the same ids."""
    task_id: str = ""
    """The conversation's task; only for engines that recite or are paid for."""
    messages: Sequence[Message] = ()
    """The conversation as chat messages, cut as `prompt_ids` are; only for models behind a chat API."""


@dataclass(frozen=True)
class Generation:
    """One sampled assistant turn."""

    sequence_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms, one for each id."""
    stop_reason: StopReason

    def __post_init__(self) -> None:
        """Raise ValueError for a log-prob that is no finite number: its token was drawn from no distribution."""
        for logprob in self.logprobs:
            if not math.isfinite(logprob):
                raise ValueError(
                    f"{self.sequence_id}: a sampled token has the log-prob {logprob}: the policy's weights, or the "
                    "engine's kernels, give no probabilities"
                )


class ContextOverflow(Exception):  # noqa: N818
    """A prompt that leaves no room in the context window. Carries the sequence id."""

    def __init__(self, sequence_id: str, message: str) -> None:
        super().__init__(message)
        self.sequence_id = sequence_id


def check_request(request: GenerationRequest, vocabulary: int) -> None:
    """Raise ValueError for an empty prompt, an id outside the model's `vocabulary` ids, or impossible sampling."""
    name, prompt = request.sequence_id, request.prompt_ids
    if not len(prompt) or min(prompt) < 0 or max(prompt) >= vocabulary:
        raise ValueError(f"{name}: a prompt needs at least one id, all of them in 0 .. {vocabulary - 1}")
    if request.sampling.max_tokens < 1 or request.sampling.temperature < 0:
        raise ValueError(f"{name}: max_tokens must be at least 1 and temperature at least 0")


def check_room(request: GenerationRequest, context_length: int) -> None:
    """Raise ContextOverflow when the prompt leaves no room for a single token."""
    name, length = request.sequence_id, len(request.prompt_ids)
    if length >= context_length:
        raise ContextOverflow(name, f"{name}: {length} ids leave no room in a context of {context_length}")


class Engine(Protocol):
    """An object that samples assistant turns for many conversations at once (continuous batching)."""

    @property
    def name(self) -> str:
        """Return the short name, which every rollout records."""
        ...

    @property
    def version(self) -> str:
        """Return the version of the sampling software, which every rollout records."""
        ...

    @property
    def context_length(self) -> int:
        """Return the longest prompt plus turn, in tokens."""
        ...

    def load_adapter(self, path: Path | None) -> None:
        """Use the policy checkpoint at `path` from now on (None: the base model). Drops all cached sequences.

        Raises ValueError, naming the tensor, when the adapter does not fit the base model.
        """
        ...

    def submit(self, request: GenerationRequest) -> None:
        """Queue one turn. Raises ContextOverflow when the prompt leaves no room for a single token."""
        ...

    def collect(self) -> list[Generation]:
        """Run until at least one queued turn is done and return all finished turns; [] when nothing is queued.

        An engine that only waits may return [] sooner, so that the caller can continue its own work.
        """
        ...

    def release(self, sequence_id: str) -> None:
        """Forget a conversation: drop its cache and, if it is still being sampled, abort it."""
        ...

    def close(self) -> None:
        """Free the engine. Idempotent."""
        ...


@runtime_checkable
class Metered(Protocol):
    """An engine whose turns are paid for."""

    def take_usage(self) -> ApiUsage:
        """Return the tokens used and money paid since the last call."""
        ...


@runtime_checkable
class ProvesDelivery(Protocol):
    """An engine in another process, which must prove that it samples from the given policy."""

    def take_deliveries(self) -> list[dict[str, Any]]:
        """Return comparisons, findings and open questions of each delivery since the last call; JSON."""
        ...


class BackgroundEngine(Engine, Protocol):
    """An engine that keeps sampling while nobody waits for it, such as a server.

    The agent loop sends an episode's next turn as soon as the observation arrives. The order in which turns end then
    depends on the clock.
    """

    @property
    def releases_device(self) -> bool:
        """Return whether it shares its device with the update in turns, and must `sleep` after use."""
        ...

    def ready(self) -> list[Generation]:
        """Return the turns that are done by now, without waiting. Raises what `collect` raises."""
        ...

    def notify(self, callback: Callable[[], None]) -> None:
        """Call `callback`, from any thread, whenever a turn is done or has failed."""
        ...

    def sleep(self) -> None:
        """Free the device where it `releases_device`; the engine gets no request until the next `load_adapter`."""
        ...


def samples_in_background(engine: Engine) -> TypeGuard[BackgroundEngine]:
    """Return whether `engine` is a BackgroundEngine. Checks its class, whose properties may not work yet."""
    return hasattr(type(engine), "notify")
